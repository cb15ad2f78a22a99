-- Delivery: leasing messages to a consumer.

-- Entries as receive.lua returns them. For messages that is a flat list of created, body and
-- envelope, because that is faster than nested ones; dead letters need the whole entry.
local function shown(q, entries)
  if q.source ~= '' then
    return entries
  end
  local found = {}
  for at, entry in ipairs(entries) do
    local fields, last = entry[2], 3 * at
    found[last - 2] = fields[2]
    found[last - 1] = fields[6]
    found[last] = fields[8] or ''
  end
  return found
end

local function note_delivered(q, s, entry, index, deliveries)
  if q.events ~= '' then
    note(q, 'delivered', index, index + 1, entry_field(entry, 't'), s.name, deliveries)
  end
end

-- Lease entries with these indexes one by one. `claimed`: XREADGROUP has claimed them and moved the
-- group's cursor. Returns what receive.lua returns.
local function lease(q, s, consumer, entries, indexes, lease_us, claimed)
  local deadline = lease_us and q.now + lease_us
  local score = deadline and text(deadline) or '+inf'
  local leases, fresh, again = {}, {}, {}
  local knows_some = redis.call('EXISTS', s.key .. ':tries') == 1
  local reach, top, epoch = s.reach, s.top, nil
  for at, entry in ipairs(entries) do
    local index = indexes[at]
    leases[2 * at - 1] = score
    leases[2 * at] = text(index)
    local deliveries, reason, _
    if knows_some then
      deliveries, _, _, reason = tried(s, index)
    end
    note_delivered(q, s, entry, index, (deliveries or 0) + 1)
    if deliveries then
      if not epoch then
        epoch = s.epoch + 1
        put(s, 'epoch', epoch)
      end
      set_tried(s, index, deliveries + 1, epoch, false, reason)
      if deliveries > 0 then
        count(s, 'redelivered', 1)
      end
      again[#again + 1] = index
      again[#again + 1] = deliveries + 1
      again[#again + 1] = epoch
      redis.call('XCLAIM', q.stream, s.name, consumer, 0, entry[1], 'RETRYCOUNT',
        text(deliveries + 1), 'FORCE', 'JUSTID')
    elseif not claimed then
      fresh[#fresh + 1] = entry[1]
      reach = math.max(reach, index + 1)
      local due, group, _ = 0, '', nil
      if q.odd ~= '' then
        _, due, group = special_of(q, index)
      end
      if due == 0 and group == '' then
        top = math.max(top, index + 1)
      end
    end
  end
  call_many('ZADD', s.key .. ':leases', {}, leases)
  if not claimed then
    for at = 1, #fresh, MOST_ARGUMENTS do
      local part = {q.stream, s.name, consumer, 0}
      for i = at, math.min(#fresh, at + MOST_ARGUMENTS - 1) do
        part[#part + 1] = fresh[i]
      end
      for _, word in ipairs({'RETRYCOUNT', 1, 'FORCE', 'JUSTID'}) do
        part[#part + 1] = word
      end
      redis.call('XCLAIM', unpack(part))
    end
    if #s.parent_names == 0 and top > s.top then
      put(s, 'top', top)
    end
    if reach > s.reach then
      put(s, 'reach', reach)
      s.moved = s.moved or not s.plain
    end
  end
  count(s, 'delivered', #entries)
  put(s, 'last_delivery', q.now)
  return {'ok', s.gen, deadline or '', again, shown(q, entries), indexes}
end

-- The same for consecutive first deliveries that XREADGROUP has claimed: all are one flight.
local function fly(q, s, entries, start, stop, lease_us)
  local deadline = lease_us and q.now + lease_us
  redis.call('ZADD', s.key .. ':flights', deadline and text(deadline) or '+inf',
    flight_member(start, stop))
  put(s, 'flying', s.flying + stop - start)
  for at, entry in ipairs(entries) do
    note_delivered(q, s, entry, start + at - 1, 1)
  end
  count(s, 'delivered', #entries)
  put(s, 'last_delivery', q.now)
  return {'ok', s.gen, deadline or '', {}, shown(q, entries), start}
end

local function indexes_of(entries)
  local found = {}
  for at, entry in ipairs(entries) do
    found[at] = entry_index(entry)
  end
  return found
end

-- Lease the runs that `ready_runs` or `ready_within` found.
local function deliver(q, s, consumer, runs, lease_us)
  local entries = entries_of(q, runs)
  local indexes = indexes_of(entries)
  local walk = s.walk
  for _, run in ipairs(runs) do
    if run.lane then
      runs_discard(s.key .. ':ready', run.lane + run[1], run.lane + run[2])
    else
      walk = math.max(walk, run[2])
    end
  end
  if s.plain then
    set_walk(s, math.min(runs_next_gap(s.key .. ':settled', walk), q.next))
  end
  if #entries < runs_count(runs) then
    -- Somebody deleted entries from the stream: their messages cannot be delivered any more.
    local there, gone = {}, {}
    for _, index in ipairs(indexes) do
      there[index] = true
    end
    for _, run in ipairs(runs) do
      for index = run[1], run[2] - 1 do
        if not there[index] then
          gone[#gone + 1] = index
        end
      end
    end
    settle(q, s, runs_of(gone), 'expired')
  end
  return lease(q, s, consumer, entries, indexes, lease_us, false)
end

-- The first messages of the runs, up to a number of bytes, but at least one message.
local function within_bytes(q, runs, most)
  local found, left = {}, most
  for _, run in ipairs(runs) do
    local at = run[1]
    while at < run[2] do
      local part = redis.call('XRANGE', q.stream, text(at), text(run[2] - 1), 'COUNT', 16)
      if #part == 0 then
        at = run[2]
      end
      for _, entry in ipairs(part) do
        left = left - #entry_field(entry, 'b') - #(entry_field(entry, 'h') or '')
        if left < 0 and (#found > 0 or at > run[1]) then
          if at > run[1] then
            found[#found + 1] = {run[1], at, lane = run.lane}
          end
          return found
        end
        at = entry_index(entry) + 1
      end
    end
    found[#found + 1] = {run[1], at, lane = run.lane}
  end
  return found
end

local NOTHING = {'ok', 0, '', {}, {}, {}}
