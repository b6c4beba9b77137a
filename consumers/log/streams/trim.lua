-- Removes the entries of a partition below an offset, and records its new first offset.
-- KEYS[1] topic record   KEYS[2] stream   ARGV: topic id, partition, offset.
-- Returns the new first offset, or -1 if the topic was deleted or recreated.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return -1
end
local bounds = redis.call('HMGET', KEYS[1], 'begin:' .. ARGV[2], 'next:' .. ARGV[2])
local begin, last = tonumber(bounds[1] or '0'), tonumber(bounds[2] or '0')
begin = math.max(begin, math.min(tonumber(ARGV[3]), last))
redis.call('HSET', KEYS[1], 'begin:' .. ARGV[2], string.format('%.0f', begin))
redis.call('XTRIM', KEYS[2], 'MINID', string.format('%.0f-0', begin + 1))
return begin
