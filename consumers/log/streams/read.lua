-- Reads one stream after the other until there are enough entries.
-- KEYS: streams   ARGV[1]: how many entries at most   ARGV[1 + i]: the id after which stream i is
-- read.
-- Returns, like XREAD, the name and the entries of each stream that has some.
local left, answer = tonumber(ARGV[1]), {}
for i, stream in ipairs(KEYS) do
  local entries = redis.call('XRANGE', stream, '(' .. ARGV[1 + i], '+', 'COUNT', left)
  if #entries > 0 then
    answer[#answer + 1] = {stream, entries}
    left = left - #entries
    if left == 0 then
      break
    end
  end
end
return answer
