-- What is due by time, as in penstock.core.retention: messages expire, leases run out, and
-- retention removes messages.

-- Settle messages as expired for one subscription; those in flight only if `in_flight_too`.
local function settle_expired(q, s, runs, in_flight_too)
  local found = {}
  for _, run in ipairs(runs) do
    for _, part in ipairs(unsettled_within(q, s, run[1], run[2])) do
      found[#found + 1] = part
    end
  end
  if #found > 0 and not in_flight_too and leased_count(s) > 0 then
    land(s)
    local leased = {}
    for at, member in ipairs(redis.call('ZRANGE', s.key .. ':leases', 0, -1)) do
      leased[at] = tonumber(member)
    end
    leased = runs_of(leased)
    local rest = {}
    for _, run in ipairs(found) do
      local within = {}
      for _, other in ipairs(leased) do
        if other[1] < run[2] and other[2] > run[1] then
          within[#within + 1] = {math.max(other[1], run[1]), math.min(other[2], run[2])}
        end
      end
      for _, part in ipairs(gaps(within, run[1], run[2])) do
        rest[#rest + 1] = part
      end
    end
    found = rest
  end
  if #found > 0 then
    settle(q, s, found, 'expired')
    tell(q)
  end
end

-- The stragglers whose time to live is over, except those that live forever.
local function aged(q)
  local function is_over(member)
    local entry = entry_at(q, tonumber(member))
    return entry and tonumber(entry_field(entry, 't')) <= q.now - q.ttl
  end
  local key, found = q.key .. ':stragglers', {}
  local from, to = text(q.ttl_checked), '(' .. text(q.first)
  local lowest = redis.call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, 1)[1]
  if lowest and is_over(lowest) then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, from, to)) do
      if not is_over(member) then
        break  -- nor is any that came later
      end
      if not redis.call('ZSCORE', q.key .. ':forever', member) then
        found[#found + 1] = tonumber(member)
      end
      put(q, 'ttl_checked', tonumber(member) + 1)
    end
  end
  return found
end

-- Settle what has expired, for every subscription where it is not in flight.
local function expire(q)
  local runs = {}
  if q.expires ~= '' then
    local key = q.key .. ':expiring'
    local due = redis.call('ZRANGEBYSCORE', key, '-inf', text(q.now), 'LIMIT', 0, MOST_AT_ONCE)
    if #due > 0 then
      call_many('ZREM', key, {}, due)
      for _, member in ipairs(due) do
        local index = tonumber(member)
        runs[#runs + 1] = {index, index + 1}
      end
    end
  end
  if q.ttl then
    if q.ttl_checked < q.first then
      for _, index in ipairs(aged(q)) do
        runs[#runs + 1] = {index, index + 1}
      end
    end
    local start = math.max(q.ttl_checked, q.first)
    local entry = start < q.next and redis.call('XRANGE', q.stream, text(start), '+', 'COUNT', 1)[1]
    if entry and tonumber(entry_field(entry, 't')) <= q.now - q.ttl then
      local stop = search(q, 't', q.now - q.ttl + 1)
      local kept = {}
      for at, member in ipairs(redis.call('ZRANGEBYSCORE', q.key .. ':forever', text(start),
          '(' .. text(stop))) do
        kept[at] = tonumber(member)
      end
      for _, run in ipairs(gaps(runs_of(kept), start, stop)) do
        runs[#runs + 1] = run
      end
      put(q, 'ttl_checked', stop)
    end
  end
  if #runs > 0 then
    runs = union(runs)  -- a message may have expired in both ways
    for _, s in ipairs(each_reader(q)) do
      settle_expired(q, s, runs, false)
    end
  end
end

-- A delivery failed: if the message has expired or has had max_deliveries, it expires or becomes a
-- dead letter. Whether it did.
local function bury_or(q, s, index, reason)
  local time = (q.ttl or q.expires ~= '') and expires_at(q, index)
  if time and time <= q.now then
    settle(q, s, {{index, index + 1}}, 'expired')
    return true
  end
  if s.max_deliveries then
    local deliveries, last = deliveries_of(s, index)
    if deliveries >= s.max_deliveries then
      if reason == '' then
        reason = last ~= '' and last or 'max-deliveries'
      end
      bury(q, s, index, reason)
      return true
    end
  end
  return false
end

-- End a lease: the message is ready at once, and a late ack counts until it is delivered again.
local function end_lease(q, s, index)
  land(s)
  local deliveries, epoch, _, reason = tried(s, index)
  note_one(q, s, 'nacked', index, deliveries or 1, 'lease-expired')
  redis.call('ZREM', s.key .. ':leases', text(index))
  set_tried(s, index, deliveries or 1, epoch or s.gen, true, reason or '')
  make_ready(q, s, index)
  count(s, 'leases_expired', 1)
end

-- End leases that have run out: their messages expire, become dead letters, or are ready again.
local function end_leases(q, s)
  local key = s.key .. ':leases'
  land(s, q.now)
  local overdue = redis.call('ZRANGEBYSCORE', key, '-inf', text(q.now), 'LIMIT', 0, MOST_AT_ONCE)
  for at, member in ipairs(overdue) do
    overdue[at] = tonumber(member)
  end
  table.sort(overdue)
  for _, index in ipairs(overdue) do
    if not bury_or(q, s, index, '') then
      end_lease(q, s, index)
    end
  end
  if #overdue > 0 then
    tell(q)
  end
end

local function settle_what_is_due(q, s)
  if q.expires ~= '' or q.ttl then
    expire(q)
  end
  end_leases(q, s)
  mature(q, s)
end

-- Remove messages from the front. Those that are unsettled somewhere or pinned become stragglers.
local function trim_to(q, first)
  local kept, is_kept = {}, {}
  local function keep(index)
    if not is_kept[index] then
      is_kept[index] = true
      kept[#kept + 1] = index
    end
  end
  for _, s in ipairs(each_reader(q)) do
    for _, run in ipairs(unsettled_within(q, s, q.first, first)) do
      for index = run[1], run[2] - 1 do
        keep(index)
      end
    end
  end
  for _, member in ipairs(redis.call('HKEYS', q.key .. ':pins')) do
    local index = tonumber(member)
    if index >= q.first and index < first then
      keep(index)
    end
  end
  local stragglers = q.key .. ':stragglers'
  local is_plain = #kept == 0 and redis.call('EXISTS', stragglers) == 0
  if is_plain then
    redis.call('XTRIM', q.stream, 'MINID', '=', entry_id(first))
  end
  if not is_plain or q.odd ~= '' or q.expires ~= '' then
    local gone, ids = {}, {}
    for index = q.first, first - 1 do
      if not is_kept[index] then
        gone[#gone + 1] = text(index)
        ids[#ids + 1] = entry_id(index)
      end
    end
    if not is_plain then
      call_many('XDEL', q.stream, {}, ids)
    end
    forget_messages(q, gone)
  end
  for _, index in ipairs(kept) do
    redis.call('ZADD', stragglers, text(index), text(index))
  end
  forget_runs(q, gaps(runs_of(kept), q.first, first))
  put(q, 'first', first)
  local oldest = redis.call('ZRANGE', stragglers, 0, 0)[1]
  local lowest = math.min(oldest and tonumber(oldest) or first, first)
  if q.odd ~= '' then
    runs_discard(q.key .. ':odd', 0, lowest)
    if redis.call('EXISTS', q.key .. ':odd') == 0 then
      put(q, 'odd', '')
    end
  end
  for _, s in ipairs(each_reader(q)) do
    if s.filtered then
      runs_discard(s.key .. ':matched', 0, lowest)
    end
  end
end

-- How far retention may go without too many stragglers. In a dead-letter queue there may be none.
local function passable(q, wanted)
  for _, s in ipairs(each_reader(q)) do
    if q.source ~= '' then
      wanted = math.min(wanted, floor_of(q, s))
    else
      local allowed = MAX_STRAGGLERS - redis.call('ZCARD', q.key .. ':stragglers')
      for _, run in ipairs(unsettled_within(q, s, q.first, wanted)) do
        if run[2] - run[1] > allowed then
          wanted = run[1]
          break
        end
        allowed = allowed - (run[2] - run[1])
      end
    end
  end
  return wanted
end

-- Remove messages from the front that the queue's retention does not keep.
local function trim(q)
  local wanted = q.first
  if q.first == q.next then
    return
  end
  if q.retention then
    local oldest = redis.call('XRANGE', q.stream, text(q.first), '+', 'COUNT', 1)[1]
    if oldest and tonumber(entry_field(oldest, 't')) < q.now - q.retention then
      wanted = math.max(wanted, search(q, 't', q.now - q.retention))
    end
  end
  if q.retention_messages then
    wanted = math.max(wanted, q.next - q.retention_messages)
  end
  if q.retention_bytes and bytes_from(q, q.first) > q.retention_bytes then
    wanted = math.max(wanted, search(q, 's', q.bytes - q.retention_bytes))
  end
  if wanted <= q.first then
    return
  end
  wanted = math.min(wanted, q.first + 10 * MOST_AT_ONCE)  -- the rest in the next call
  if q.retain ~= '' then
    wanted = passable(q, wanted)
  else
    for _, s in ipairs(each_reader(q)) do
      settle_expired(q, s, {{q.first, wanted}}, true)
    end
  end
  if wanted > q.first then
    trim_to(q, wanted)
  end
end
