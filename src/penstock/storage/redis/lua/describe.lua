#!lua flags=no-writes
-- The definitions of a queue, which a server needs before it can run any other script.
--
-- KEYS[1]  the queue's hash; reads the hashes of its subscriptions
-- ARGV[1]  the version of the definitions that the server knows, or empty
-- Returns  empty if there is no such queue; just the version if that is the known one; otherwise
--          version, id, salt, source, source_salt, config, pending, observed, and {name, id, config,
--          since, secrets} of each subscription
local found = redis.call('HMGET', KEYS[1], 'version', 'id', 'salt', 'source', 'source_salt',
  'config', 'pending', 'observed', 'subs')
if not found[1] then
  return {}
end
if found[1] == ARGV[1] then
  return {found[1]}
end
local readers = {}
for name in string.gmatch(found[9] or '', '%S+') do
  local s = redis.call('HMGET', KEYS[1] .. ':s:' .. name, 'id', 'config', 'since', 'secrets')
  readers[#readers + 1] = {name, s[1], s[2], s[3] or '', s[4] or '[]'}
end
found[9] = readers
return found
