-- The state of a queue and of its dead-letter queue, without their messages.

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

-- Empty if there is no such queue; otherwise {fields, letters, pins, subscriptions} of the queue
-- and, if there is one, of its dead-letter queue. A subscription is {name, fields, settled, dead,
-- opened, tries, leased, waiting, flights}, each as Redis returns it.
local function snapshot(key)
  local found = redis.call('HMGET', key, 'version', 'dlq')
  if not found[1] then
    return {}
  elseif found[2] == '1' then
    return {queue_at(key), queue_at(key .. '-dlq')}
  end
  return {queue_at(key)}
end
