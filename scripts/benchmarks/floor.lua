-- The writes of one model's batch by the floor (floor.py): the same keys and bytes as a commit of
-- the product, without a comparison or a check.
--
-- KEYS  1 head  2 ledger  3 deletions  4 requests  5 offsets  6 retired  7 models  8 cursors
--       9 erasures  10 V  11 Q  12.. the 8 shards of row records
-- ARGV  1 fields of the head  2 rows  3 requests  4 rows of V  5 rows of Q  6 partition  7 next offset
--       8 cursor  9 version  10 model; then pairs of the head, row ids, the shard of each,
--       pairs of requests, rows of V, rows of Q

local at = 10

local function take(n)
  local values = {}
  for i = 1, n do values[i] = ARGV[at + i] end
  at = at + n
  return values
end

local function in_chunks(command, key, values)
  for first = 1, #values, 1000 do
    redis.call(command, key, unpack(values, first, math.min(first + 999, #values)))
  end
end

in_chunks('HSET', KEYS[1], take(2 * ARGV[1]))
local rows, shards = take(ARGV[2]), take(ARGV[2])
for i, row in ipairs(rows) do
  redis.call('HSET', KEYS[2], row, ARGV[9])
  redis.call('HDEL', KEYS[12 + shards[i]], row)
end
in_chunks('RPUSH', KEYS[3], rows)
in_chunks('SREM', KEYS[6], rows)
in_chunks('HSET', KEYS[4], take(2 * ARGV[3]))
in_chunks('RPUSH', KEYS[10], take(ARGV[4]))
in_chunks('RPUSH', KEYS[11], take(ARGV[5]))
redis.call('HSET', KEYS[5], ARGV[6], ARGV[7])
redis.call('SADD', KEYS[7], ARGV[10])
redis.call('HSET', KEYS[8], 'apply', ARGV[8], 'below', string.rep('0', 64), 'epoch', '0')
redis.call('HSET', KEYS[9], 'last', redis.call('TIME')[1])
return 'OK'
