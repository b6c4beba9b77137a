-- Returns how many entries the keys have that the head counts, and a generation's row records: in
-- one command, because a worker asks with every batch (engine/store/counts.py).
--
-- KEYS  1 ledger  2 requests  3 retired  4 deferred  5 ids  6 subjects  7.. shards of row records

local records = 0
for i = 7, #KEYS do records = records + redis.call('HLEN', KEYS[i]) end
return {
  redis.call('HLEN', KEYS[1]), redis.call('HLEN', KEYS[2]), redis.call('SCARD', KEYS[3]),
  redis.call('HLEN', KEYS[4]), redis.call('LLEN', KEYS[5]), redis.call('HLEN', KEYS[6]), records,
}
