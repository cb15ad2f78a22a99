#!lua flags=no-writes
-- What a server must know of a queue before it can ask for anything else.
--
-- KEYS[1]  the queue's hash; reads the hashes of its subscriptions
-- Answers  nothing if there is no such queue; else its version, id, salt, source, config, pending
--          filters, the queue whose events it holds, and name, id, config, `since` and secrets of each subscription
local found = redis.call('HMGET', KEYS[1], 'version', 'id', 'salt', 'source', 'source_salt',
  'config', 'pending', 'observed', 'subs')
if not found[1] then
  return {}
end
local readers = {}
for name in string.gmatch(found[9] or '', '%S+') do
  local s = redis.call('HMGET', KEYS[1] .. ':s:' .. name, 'id', 'config', 'since', 'secrets')
  readers[#readers + 1] = {name, s[1], s[2], s[3] or '', s[4] or '[]'}
end
found[9] = readers
return found
