-- The usual receive: a plain subscription with nothing due, nothing ready and no leases except
-- flights, so that all messages to deliver are ahead. It has the effect of receive.lua, without the
-- time to define the libraries. Everything else is left to receive.lua, with the entries in
-- `read_ahead` if they were read already but cannot be one flight.
local read_ahead

-- Whether the next messages, `room` at most, certainly have no more bytes than ARGV[7]. The field
-- `s` of an entry is the number of bytes before its batch, so an entry of a later batch gives an
-- upper bound. `total` is the number of bytes ever published. In a dead-letter queue, `s` does not
-- grow.
local function fits(stream, from, room, total)
  local MOST_IN_A_BATCH = 10000
  local first = redis.call('XRANGE', stream, string.format('%.0f', from), '+', 'COUNT', 1)[1]
  if not first then
    return true
  end
  local beyond = redis.call('XRANGE', stream, string.format('%.0f', from + room + MOST_IN_A_BATCH),
    '+', 'COUNT', 1)[1]
  return (beyond and beyond[2][4] or total) - first[2][4] <= tonumber(ARGV[7])
end

do
  local key = KEYS[1] .. ':s:' .. ARGV[3]
  local q = redis.call('HMGET', KEYS[1], 'version', 'now', 'odd', 'expires', 'ttl', 'source',
    'bytes')
  local s = redis.call('HMGET', key, 'walk', 'top', 'gen', 'flying', 'lease', 'max_in_flight',
    'paused', 'filter', 'parents')
  if q[1] == ARGV[2] and (q[3] or '') .. (q[4] or '') .. (q[5] or '') .. (q[6] or '') == ''
      and (s[7] or '') .. (s[8] or '') .. (s[9] or '') == ''
      and redis.call('EXISTS', key .. ':ready', key .. ':waiting', key .. ':leases') == 0 then
    local now = tonumber(ARGV[1])
    if not now then
      local time = redis.call('TIME')
      now = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    now = math.max(now, tonumber(q[2]))
    local walk, flying = tonumber(s[1]), tonumber(s[4] or 0)
    local room = math.min(tonumber(ARGV[5]), tonumber(s[6]) - flying)
    local first = redis.call('ZRANGE', key .. ':flights', 0, 0, 'WITHSCORES')
    local settled = redis.call('ZREVRANGE', key .. ':settled', 0, 0)
    if room > 0 and (tonumber(first[2] or nil) or math.huge) > now
        and tonumber(settled[1] or 0) <= walk
        and (ARGV[7] == '' or fits(KEYS[1] .. ':stream', walk, room, q[7])) then
      local read = redis.call('XREADGROUP', 'GROUP', ARGV[3], ARGV[4], 'COUNT', room, 'STREAMS',
        KEYS[1] .. ':stream', '>')
      local entries = read and read[1][2] or {}
      local total = #entries
      if total == 0 then
        return {'ok', 0, '', {}, {}, {}}
      end
      local stop = tonumber(string.match(entries[total][1], '^%d+')) + 1
      if stop - walk == total then
        local lease = tonumber(ARGV[6]) or tonumber(s[5])
        local deadline = lease and string.format('%.0f', now + lease)
        local at = string.format('%.0f', now)
        redis.call('ZADD', key .. ':flights', deadline or '+inf',
          string.format('%.0f:%.0f', walk, stop))
        redis.call('HSET', key, 'walk', string.format('%.0f', stop), 'top',
          string.format('%.0f', math.max(tonumber(s[2]), stop)), 'flying',
          string.format('%.0f', flying + total), 'last_delivery', at)
        redis.call('HINCRBY', key, 'delivered', total)
        redis.call('HSET', KEYS[1], 'now', at)
        local found = {}
        for i = 1, total do
          local fields, last = entries[i][2], 3 * i
          found[last - 2] = fields[2]
          found[last - 1] = fields[6]
          found[last] = fields[8] or ''
        end
        return {'ok', tonumber(s[3]), deadline or '', {}, found, walk}
      end
      read_ahead = entries
    end
  end
end
