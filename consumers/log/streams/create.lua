-- Creates a topic unless it exists; adds the partitions that it lacks if it grows.
-- KEYS[1] topic record. ARGV: topic id, partitions, compacted (0 or 1), largest message in bytes,
-- retention in milliseconds (-1: for ever), grows (0 or 1).
-- Returns 1 if it was created, 0 if it existed.
local partitions = redis.call('HGET', KEYS[1], 'partitions')
if partitions then
  if ARGV[6] == '1' and tonumber(partitions) < tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], 'partitions', ARGV[2])
  end
  return 0
end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'partitions', ARGV[2], 'compacted', ARGV[3],
  'max_message_bytes', ARGV[4], 'retention_ms', ARGV[5])
return 1
