-- The state of a queue and of its dead-letter queue, without their messages.

-- When a subscription was changed last. The quick ways to receive and to ack note only their own
-- time.
local function changed_at(s)
  local latest = 0
  for _, time in ipairs(redis.call('HMGET', s, 'changed', 'last_delivery', 'last_ack')) do
    latest = math.max(latest, tonumber(time or nil) or 0)
  end
  return latest
end

local function queue_at(key, since)
  local readers = {}
  for name in string.gmatch(redis.call('HGET', key, 'subs') or '', '%S+') do
    local s = key .. ':s:' .. name
    if not since or changed_at(s) >= since then
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
-- opened, tries, leased, waiting, flights}, each as Redis returns it. Those of the queue that have
-- not changed since this time of the queue are left out.
local function snapshot(key, since)
  local found = redis.call('HMGET', key, 'version', 'dlq')
  if not found[1] then
    return {}
  elseif found[2] == '1' then
    return {queue_at(key, since), queue_at(key .. '-dlq')}
  end
  return {queue_at(key, since)}
end
