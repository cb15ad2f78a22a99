#!lua flags=no-writes
-- A queue and its dead-letter queue without their messages, as of one moment, for the archive.
--
-- KEYS[1]  the queue's hash; reads the keys of its subscriptions, its :pins, and those of its
--          dead-letter queue
-- Returns  empty if there is no such queue; otherwise {fields, letters, pins, subscriptions} of the
--          queue and, if there is one, of its dead-letter queue. A subscription is {name, fields,
--          settled, dead, opened, tries, leased, waiting, flights}, each as Redis returns it.
local function queue_at(key)
  local readers = {}
  for name in string.gmatch(redis.call('HGET', key, 'subs') or '', '%S+') do
    local s = key .. ':s:' .. name
    readers[#readers + 1] = {
      name,
      redis.call('HGETALL', s),
      redis.call('ZRANGE', s .. ':settled', 0, -1, 'WITHSCORES'),
      redis.call('ZRANGE', s .. ':dead', 0, -1, 'WITHSCORES'),
      redis.call('ZRANGE', s .. ':opened', 0, -1, 'WITHSCORES'),
      redis.call('HGETALL', s .. ':tries'),
      redis.call('ZRANGE', s .. ':leases', 0, -1),
      redis.call('ZRANGE', s .. ':waiting', 0, -1, 'WITHSCORES'),
      redis.call('ZRANGE', s .. ':flights', 0, -1),
    }
  end
  return {
    redis.call('HGETALL', key),
    redis.call('HGETALL', key .. ':letters'),
    redis.call('HGETALL', key .. ':pins'),
    readers,
  }
end

local found = redis.call('HMGET', KEYS[1], 'version', 'dlq')
if not found[1] then
  return {}
elseif found[2] == '1' then
  return {queue_at(KEYS[1]), queue_at(KEYS[1] .. '-dlq')}
end
return {queue_at(KEYS[1])}
