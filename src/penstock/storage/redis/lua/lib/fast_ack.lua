-- The usual ack: one flight, directly after what is settled already, on a subscription without
-- filter and children. It has the effect of settle.lua, without the time to define the libraries.
-- Everything else is left to settle.lua.
do
  local key = KEYS[1] .. ':s:' .. ARGV[3]
  local q = redis.call('HMGET', KEYS[1], 'version', 'now', 'source', 'first', 'events')
  local s = redis.call('HMGET', key, 'gen', 'flying', 'max_in_flight', 'filter', 'children', 'walk',
    'settled_total')
  local one = cmsgpack.unpack(ARGV[4])
  local run = #one == 1 and one[1][1] == 'ack' and one[1][2].run
  if run and q[1] == ARGV[2] and (q[3] or '') .. (q[5] or '') .. (s[4] or '') .. (s[5] or '') == ''
      and run[1] >= tonumber(q[4]) and run[2] - run[1] <= 4000 and run[3] == tonumber(s[1])
      and redis.call('EXISTS', key .. ':ready', key .. ':heads', key .. ':leases') == 0 then
    local start, stop, total = run[1], run[2], run[2] - run[1]
    -- It must extend the only settled run, or nothing may be settled yet.
    local settled = redis.call('ZRANGE', key .. ':settled', 0, 1, 'WITHSCORES')
    local before = string.format('%.0f', start)
    local flight = before .. ':' .. string.format('%.0f', stop)
    if (settled[1] == before and not settled[3] or not settled[1])
        and redis.call('ZREM', key .. ':flights', flight) == 1 then
      local now = tonumber(ARGV[1])
      if not now then
        local time = redis.call('TIME')
        now = tonumber(time[1]) * 1000000 + tonumber(time[2])
      end
      now = string.format('%.0f', math.max(now, tonumber(q[2])))
      local ids = {}
      for i = 1, total do
        ids[i] = string.format('%.0f-0', start + i - 1)
      end
      if start == 0 then
        ids[1] = '0-1'
      end
      redis.call('XACK', KEYS[1] .. ':stream', ARGV[3], unpack(ids))
      if settled[1] then
        redis.call('ZREM', key .. ':settled', before)
      end
      redis.call('ZADD', key .. ':settled', settled[2] or before, string.format('%.0f', stop))
      redis.call('HSET', key, 'last_ack', now, 'flying', string.format('%.0f', s[2] - total),
        'settled_total', string.format('%.0f', s[7] + total))
      redis.call('HINCRBY', key, 'acked', total)
      redis.call('HSET', KEYS[1], 'now', now)
      if tonumber(s[2]) >= tonumber(s[3]) then
        redis.call('PUBLISH', KEYS[1] .. ':news', '*')
      end
      return {'ok', string.rep('0', total)}
    end
  end
end
