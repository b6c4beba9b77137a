-- Appends messages with dense offsets: all of them, or none if the topic has changed.
--
-- KEYS[1]              topic record
-- KEYS[2], KEYS[3]     stream and latest-value hash of the first partition used, then of the next
-- ARGV[1], ARGV[2]     topic id and number of partitions that the sender expects
-- ARGV[3]              number u of partitions used, then their u indices
-- then per message     which of the partitions used (1..u), value present (1 or 0), key, value,
--                      headers
--
-- Returns the offset of the first message of each partition used, or 0 if the topic was deleted,
-- recreated or repartitioned (nothing was written).
-- An entry's id is offset + 1, because Redis has no entry 0-0.
local topic = redis.call('HMGET', KEYS[1], 'id', 'partitions', 'compacted')
if topic[1] ~= ARGV[1] or topic[2] ~= ARGV[2] then
  return 0
end
local compacted = topic[3] == '1'
local used = tonumber(ARGV[3])
local firsts, nexts = {}, {}
for u = 1, used do
  nexts[u] = tonumber(redis.call('HGET', KEYS[1], 'next:' .. ARGV[3 + u]) or '0')
  firsts[u] = nexts[u]
end
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))

local failure = nil
for at = 4 + used, #ARGV, 5 do
  local u = tonumber(ARGV[at])
  local stream, latest = KEYS[2 * u], KEYS[2 * u + 1]
  local id = string.format('%.0f-0', nexts[u] + 1)
  local key, value, headers = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local added
  if ARGV[at + 1] == '1' then
    added = redis.pcall('XADD', stream, id, 't', now, 'h', headers, 'k', key, 'v', value)
  else
    added = redis.pcall('XADD', stream, id, 't', now, 'h', headers, 'k', key)
  end
  -- A script that fails midway keeps its writes, so the counters below must match them.
  if type(added) == 'table' and added.err then
    failure = added
    break
  end
  nexts[u] = nexts[u] + 1
  if compacted then
    local former = redis.call('HGET', latest, key)
    if former then
      redis.call('XDEL', stream, former)
    end
    redis.call('HSET', latest, key, id)
  end
end
for u = 1, used do
  redis.call('HSET', KEYS[1], 'next:' .. ARGV[3 + u], string.format('%.0f', nexts[u]))
end
return failure or firsts
