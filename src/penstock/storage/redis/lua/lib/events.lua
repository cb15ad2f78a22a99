-- Lifecycle events: what happens to the messages of a queue with the setting `events`, as rows for
-- <queue>-events (see penstock.core.lifecycle). A script notes rows, and `finish` appends them to
-- the list :untold as one entry, in the same atomic step. From there a server publishes them, with
-- untold.lua and publish.lua.
--
-- A row is {event, start, stop, published, at, subscription, deliveries, reason, topic}; fields
-- that do not apply are 0 or empty.

-- Events with a row for every message; rows of all others are merged.
local ALONE = {dead_lettered = true, replayed = true}
-- Ways of being settled that are events.
local TOLD = {acked = true, expired = true, dead_lettered = true}

-- Add a row, or extend the last one if they differ in their indexes only.
local function note(q, event, start, stop, published, subscription, deliveries, reason, topic)
  q.rows = q.rows or {}
  local row = {
    event, start, stop, tonumber(published), q.now, subscription or '', deliveries or 0, reason or '',
    topic or '',
  }
  local last = q.rows[#q.rows]
  local is_same = last and last[3] == start and not ALONE[event]
  for at = 1, is_same and #row or 0 do
    is_same = is_same and (at == 2 or at == 3 or row[at] == last[at])
  end
  if is_same then
    last[3] = stop
  else
    q.rows[#q.rows + 1] = row
  end
end

-- Add a row for one message, if it still exists.
local function note_one(q, s, event, index, deliveries, reason)
  if q.events ~= '' then
    local entry = entry_at(q, index)
    if entry then
      note(q, event, index, index + 1, entry_field(entry, 't'), s.name, deliveries, reason)
    end
  end
end

-- Split a run by the time of publication: {{start, stop, time}, ...}.
local function spans(q, start, stop)
  local found, at = {}, start
  while at < stop do
    local entry = redis.call('XRANGE', q.stream, text(at), text(stop - 1), 'COUNT', 1)[1]
    if not entry then
      break
    end
    local time = entry_field(entry, 't')
    -- Everything below `low` has that time, nothing from `high` on has.
    local low, high, step = entry_index(entry) + 1, stop, 1
    while low < high do
      local probe = math.min(low + step, high) - 1
      local other = redis.call('XRANGE', q.stream, text(probe), text(stop - 1), 'COUNT', 1)[1]
      if other and entry_field(other, 't') == time then
        low, step = entry_index(other) + 1, 2 * step
      else
        high, step = probe, 1
      end
    end
    found[#found + 1] = {entry_index(entry), low, time}
    at = low
  end
  return found
end

-- Add rows for messages that are about to be settled. `landed`: they were a flight, so each was
-- delivered once; otherwise :leases and :tries have the number of deliveries.
local function note_settled(q, s, runs, way, landed, reason)
  local counts, known = {}, {}
  if not landed then
    for _, member in ipairs(members_within(s.key .. ':leases', {size = 'ZCARD'}, runs)) do
      if redis.call('ZSCORE', s.key .. ':leases', member) then
        counts[tonumber(member)] = 1
      end
    end
    for _, member in ipairs(members_within(s.key .. ':tries', {size = 'HLEN'}, runs)) do
      local found = redis.call('HGET', s.key .. ':tries', member)
      if found then
        counts[tonumber(member)] = tonumber(string.match(found, '^%d+'))
      end
    end
    for index in pairs(counts) do
      known[#known + 1] = index
    end
    table.sort(known)
  end
  local next_known = 1
  for _, run in ipairs(runs) do
    for _, span in ipairs(spans(q, run[1], run[2])) do
      local at, stop, time = span[1], span[2], span[3]
      while known[next_known] and known[next_known] < stop do
        local index = known[next_known]
        if index > at then
          note(q, way, at, index, time, s.name, 0, reason)
        end
        if index >= at then
          note(q, way, index, index + 1, time, s.name, counts[index], reason)
          at = index + 1
        end
        next_known = next_known + 1
      end
      if at < stop then
        note(q, way, at, stop, time, s.name, landed and 1 or 0, reason)
      end
    end
  end
end

local function add_untold(q)
  if q.rows then
    redis.call('RPUSH', q.key .. ':untold', cmsgpack.pack(q.rows))
    q.rows = nil
    tell({key = q.key .. '-events'})
  end
end
