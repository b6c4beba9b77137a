-- Creates a topic unless it exists.
-- KEYS[1] topic record. ARGV: topic id, partitions, compacted (0 or 1), largest message in bytes,
-- retention in milliseconds (-1: for ever).
-- Returns 1 if it was created, 0 if it existed.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'partitions', ARGV[2], 'compacted', ARGV[3],
  'max_message_bytes', ARGV[4], 'retention_ms', ARGV[5])
return 1
