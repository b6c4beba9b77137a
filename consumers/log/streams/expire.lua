-- Removes the records of a partition that are older than the topic's retention.
-- KEYS[1] topic record   KEYS[2] stream   ARGV: topic id, partition.
-- Returns the new first offset, or -1 if the topic was deleted or recreated.
--
-- Offsets are dense and times ascend, so a binary search finds the first record that stays.
local topic = redis.call('HMGET', KEYS[1], 'id', 'retention_ms', 'begin:' .. ARGV[2],
  'next:' .. ARGV[2])
if topic[1] ~= ARGV[1] then
  return -1
end
local begin, last = tonumber(topic[3] or '0'), tonumber(topic[4] or '0')
local retention = tonumber(topic[2] or '-1')
if retention < 0 then
  return begin
end
local time = redis.call('TIME')
local oldest = time[1] * 1000 + math.floor(time[2] / 1000) - retention

local low, high = begin, last -- the first record that stays lies in low..high
while low < high do
  local middle = math.floor((low + high) / 2)
  local id = string.format('%.0f-0', middle + 1)
  local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
  -- The time is the first field. A missing record was trimmed by hand, and so were those before it.
  if entry == nil or tonumber(entry[2][2]) < oldest then
    low = middle + 1
  else
    high = middle
  end
end
if low > begin then
  redis.call('HSET', KEYS[1], 'begin:' .. ARGV[2], string.format('%.0f', low))
  redis.call('XTRIM', KEYS[2], 'MINID', string.format('%.0f-0', low + 1))
end
return low
