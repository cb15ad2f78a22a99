-- A subscription and its progress: a cursor with exceptions, as in penstock.core.subscription. An
-- unsettled message is in exactly one of these places:
--
--   ahead     at or above `walk`, never delivered. Only a plain subscription, one without a filter
--             and without parents, has messages there; `odd` ones never are.
--   ready     deliverable now, by priority and then index
--   waiting   not due yet: a delay, or the backoff after a nack
--   line      behind an earlier message of its group
--   leases    in flight
--   flights   also in flight: consecutive first deliveries from one receive, as one member. This is
--             the usual case; whatever handles single messages turns them into leases (`land`).
--   held      not in `opened`, because a parent has not passed it
--
-- Everything else is settled. The consumer group of the stream shows the same to operators: its
-- pending entries are the messages that were delivered and are not settled, with the number of
-- deliveries.
-- uses: events

local PRIORITIES = 10
local LANE = 2 ^ 42  -- more than any index
local PLAIN_LANE = PRIORITIES * LANE

-- The suffixes of a subscription's keys.
local READER_KEYS = {
  '', ':settled', ':ready', ':waiting', ':leases', ':flights', ':tries', ':matched', ':opened',
  ':dead', ':heads', ':line',
}
local READER_NUMBERS = {
  'start', 'walk', 'top', 'reach', 'polled', 'passed', 'gen', 'epoch', 'matched_total', 'settled_total', 'lease', 'flying',
  'max_in_flight', 'max_deliveries', 'backoff_base', 'backoff_factor', 'backoff_max', 'jitter',
}
local READER_TEXTS = {'id', 'on_dead', 'paused', 'ordered', 'filter', 'parents', 'children'}
local READER_FIELDS = {}
for _, name in ipairs(READER_NUMBERS) do READER_FIELDS[#READER_FIELDS + 1] = name end
for _, name in ipairs(READER_TEXTS) do READER_FIELDS[#READER_FIELDS + 1] = name end

local function load_reader(q, name)
  local s = q.readers[name]
  if not s then
    s = load_hash(q.key .. ':s:' .. name, READER_FIELDS, #READER_NUMBERS)
    s.name = name
    s.queue = q
    s.filtered = s.filter ~= ''
    s.parent_names = words(s.parents)
    s.plain = not s.filtered and #s.parent_names == 0
    s.counts = {}
    s.flying = s.flying or 0
    q.readers[name] = s
  end
  return s
end

-- `name` is known to be a name: it has no spaces.
local function has_reader(q, name)
  return string.find(' ' .. q.subs .. ' ', ' ' .. name .. ' ', 1, true) ~= nil
end

local function each_reader(q)
  local found = {}
  for at, name in ipairs(words(q.subs)) do
    found[at] = load_reader(q, name)
  end
  return found
end

local function count(s, way, number)
  s.counts[way] = (s.counts[way] or 0) + number
end

-- Reading the state.

local function matched_within(q, s, start, stop)
  if s.filtered then
    return runs_within(s.key .. ':matched', start, stop)
  end
  stop = math.min(stop, q.next)
  return start < stop and {{start, stop}} or {}
end

local function unsettled_within(q, s, start, stop)
  local found = {}
  for _, run in ipairs(matched_within(q, s, start, stop)) do
    for _, part in ipairs(runs_outside(s.key .. ':settled', run[1], run[2])) do
      found[#found + 1] = part
    end
  end
  return found
end

-- The lowest unsettled index; q.next if there is none.
local function floor_of(q, s)
  local at = runs_next_gap(s.key .. ':settled', 0)
  if not s.filtered then
    return math.min(at, q.next)
  end
  while true do
    local following = runs_next(s.key .. ':matched', at)
    if not following then
      return q.next
    end
    at = runs_next_gap(s.key .. ':settled', following)
    if at == following then
      return at
    end
  end
end

local function unsettled_count(q, s)
  return (s.filtered and s.matched_total or q.next - s.start) - s.settled_total
end

-- How many have come, for a number that changes with all that arrives: see peek.lua. The field
-- `news` counts what else became deliverable: what was due, and seeks.
local function came(q, s)
  if #s.parent_names > 0 then
    return runs_count(runs_within(s.key .. ':opened', 0, q.next))
  end
  return s.filtered and s.matched_total or q.next - s.start
end

local function is_settled(q, s, index)
  return runs_has(s.key .. ':settled', index)
    or s.filtered and not runs_has(s.key .. ':matched', index)
end

-- Deliveries, epoch, whether a late ack counts, and the last reason; nil without an entry in
-- :tries. A message in flight for the first time needs none: it has 1 delivery, and its epoch is
-- s.gen.
local function tried(s, index)
  local found = redis.call('HGET', s.key .. ':tries', text(index))
  if found then
    local deliveries, epoch, late, reason = string.match(found, '^(%d+):(%d+):(%d):(.*)$')
    return tonumber(deliveries), tonumber(epoch), late == '1', reason
  end
end

local function set_tried(s, index, deliveries, epoch, late, reason)
  local value = deliveries .. ':' .. text(epoch) .. (late and ':1:' or ':0:') .. reason
  redis.call('HSET', s.key .. ':tries', text(index), value)
end

local function flight_member(start, stop)
  return text(start) .. ':' .. text(stop)
end

local function flight_bounds(member)
  local start, stop = string.match(member, '^(%d+):(%d+)$')
  return tonumber(start), tonumber(stop)
end

-- Turn flights into leases, one for each message: all, or those whose deadline is not after `by`.
local function land(s, by)
  if s.flying == 0 then
    return
  end
  local key = s.key .. ':flights'
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', by and text(by) or '+inf', 'WITHSCORES')
  for at = 1, #found, 2 do
    local start, stop = flight_bounds(found[at])
    local leases = {}
    for index = start, stop - 1 do
      leases[#leases + 1] = found[at + 1]
      leases[#leases + 1] = text(index)
    end
    call_many('ZADD', s.key .. ':leases', {}, leases)
    redis.call('ZREM', key, found[at])
    put(s, 'flying', s.flying - (stop - start))
  end
end

-- The deadline of a message in flight, otherwise nil. Flights stay: read-only scripts call this.
local function leased_until(s, index)
  local deadline = redis.call('ZSCORE', s.key .. ':leases', text(index))
  if not deadline and s.flying > 0 then
    local flights = redis.call('ZRANGE', s.key .. ':flights', 0, -1, 'WITHSCORES')
    for at = 1, #flights, 2 do
      local start, stop = flight_bounds(flights[at])
      if index >= start and index < stop then
        deadline = flights[at + 1]
        break
      end
    end
  end
  return deadline and tonumber(deadline) or nil
end

local function is_leased(s, index)
  return leased_until(s, index) ~= nil
end

local function leased_count(s)
  return redis.call('ZCARD', s.key .. ':leases') + s.flying
end

local function was_tried(s, index)
  return (tried(s, index) or 0) > 0
end

-- How many more messages may be in flight. If the subscription is ordered, none as long as one that
-- was delivered before waits for its backoff.
local function room_of(s)
  local room = s.max_in_flight - leased_count(s)
  if room > 0 and s.ordered ~= '' then
    for _, member in ipairs(redis.call('HKEYS', s.key .. ':tries')) do
      if redis.call('ZSCORE', s.key .. ':waiting', member) and was_tried(s, tonumber(member)) then
        return 0
      end
    end
  end
  return room
end

-- The number of deliveries, and the last reason.
local function deliveries_of(s, index)
  local deliveries, _, _, reason = tried(s, index)
  if deliveries then
    return deliveries, reason
  end
  return is_leased(s, index) and 1 or 0, ''
end

local function lane_of(priority)
  return (PRIORITIES - priority) * LANE
end

-- What is ready within a range of indexes, in any lane; ascending within each lane.
local function ready_within(s, start, stop)
  local found = {}
  if redis.call('EXISTS', s.key .. ':ready') == 1 then
    for priority = 0, PRIORITIES do
      local lane = lane_of(priority)
      for _, run in ipairs(runs_within(s.key .. ':ready', lane + start, lane + stop)) do
        found[#found + 1] = {run[1] - lane, run[2] - lane, lane = lane}
      end
    end
  end
  return found
end

local function is_ready(q, s, index)
  return runs_has(s.key .. ':ready', lane_of((special_of(q, index))) + index)
end

-- Whether a message is ready because it came back, became due, was opened or was passed over by a
-- poll. Being ready is not enough: with a priority or a filter, messages are ready before any
-- delivery.
local function is_within_reach(q, s, index)
  local _, due, group = special_of(q, index)
  return is_ready(q, s, index) and (#s.parent_names > 0 or due > 0 or group ~= ''
    or index < s.passed or tried(s, index) ~= nil)
end

-- The runs within start..stop that are ahead of a plain subscription, up to a limit of messages.
local function ahead(q, s, start, stop, limit)
  local found, at = {}, start
  local settled, odd = s.key .. ':settled', q.key .. ':odd'
  while at < stop and limit > 0 do
    local from = runs_next_gap(settled, at)
    if q.odd ~= '' then
      from = runs_next_gap(odd, from)
    end
    if from == at then
      local till = math.min(stop, at + limit, runs_next(settled, at) or stop)
      if q.odd ~= '' then
        till = math.min(till, runs_next(odd, at) or stop)
      end
      found[#found + 1] = {at, till}
      limit = limit - (till - at)
      from = till
    end
    at = from
  end
  return found
end

-- Runs of deliverable messages in the order of delivery, up to a limit of messages. Those in
-- `ready` have a lane; the others are ahead.
local function ready_runs(q, s, limit)
  local ready = s.key .. ':ready'
  local found = {}
  if redis.call('EXISTS', ready) == 1 then
    for _, run in ipairs(runs_within(ready, 0, PLAIN_LANE, limit)) do
      local index = run[1] % LANE
      found[#found + 1] = {index, index + run[2] - run[1], lane = run[1] - index}
    end
    limit = limit - runs_count(found)
    local rest = {}
    for _, run in ipairs(runs_within(ready, PLAIN_LANE, PLAIN_LANE + LANE, limit)) do
      rest[#rest + 1] = {run[1] - PLAIN_LANE, run[2] - PLAIN_LANE, lane = PLAIN_LANE}
    end
    if s.plain then
      for _, run in ipairs(ahead(q, s, s.walk, q.next, limit)) do
        rest[#rest + 1] = run
      end
      table.sort(rest, function(one, other) return one[1] < other[1] end)
    end
    for _, run in ipairs(cut(rest, limit)) do
      found[#found + 1] = run
    end
  elseif s.plain then
    found = ahead(q, s, s.walk, q.next, limit)
  end
  return found
end

-- Changing the state.

local function make_ready(q, s, index)
  local lane = lane_of((special_of(q, index)))
  runs_add(s.key .. ':ready', lane + index, lane + index + 1)
  tell(q)
end

-- Make a message wait until it is due; ready at once if `due` is 0.
local function wait_until(q, s, index, due)
  if due > 0 then
    redis.call('ZADD', s.key .. ':waiting', text(due), text(index))
    put(s, 'changed', q.now)
    tell(q)  -- receivers that wait for a later time must wait for this one
  else
    make_ready(q, s, index)
  end
end

local function line_member(group, index)
  return redis.sha1hex(group) .. string.format(':%016.0f', index)
end

local function line_bounds(group)
  local digest = redis.sha1hex(group)
  return '[' .. digest .. ':', '(' .. digest .. ';'
end

-- Add a message to its group; whether it is the head, which alone may be delivered.
local function is_head(q, s, group, index)
  local heads, line = s.key .. ':heads', s.key .. ':line'
  local head = tonumber(redis.call('HGET', heads, group) or nil)
  if not head then
    redis.call('HSET', heads, group, text(index))
    return true
  end
  if head == index then
    return true
  end
  if index < head and not is_leased(s, head) and not was_tried(s, head) then
    -- The head was never delivered, so an earlier message that came back goes first.
    local lane = lane_of((special_of(q, head)))
    runs_discard(s.key .. ':ready', lane + head, lane + head + 1)
    redis.call('ZREM', s.key .. ':waiting', text(head))
    put(s, 'changed', q.now)
    redis.call('ZADD', line, 0, line_member(group, head))
    redis.call('ZREM', line, line_member(group, index))
    redis.call('HSET', heads, group, text(index))
    return true
  end
  redis.call('ZADD', line, 0, line_member(group, index))
  return false
end

-- Place a single message: in line if it is not the head of its group, otherwise waiting or ready.
local function admit(q, s, index)
  local _, due, group = special_of(q, index)
  if group ~= '' and not is_head(q, s, group, index) then
    return
  end
  if (due > 0 or group ~= '') and (is_leased(s, index) or was_tried(s, index)) then
    return
  end
  wait_until(q, s, index, due)
end

-- Remove a message from its group. If it was the head, the next one in line becomes the head.
local function leave_group(q, s, group, index)
  local heads, line = s.key .. ':heads', s.key .. ':line'
  local head = tonumber(redis.call('HGET', heads, group) or nil)
  if head ~= index then
    redis.call('ZREM', line, line_member(group, index))
    return
  end
  local low, high = line_bounds(group)
  local following = redis.call('ZRANGEBYLEX', line, low, high, 'LIMIT', 0, 1)[1]
  if following then
    local next_index = tonumber(string.sub(following, 42))
    redis.call('ZREM', line, following)
    redis.call('HSET', heads, group, text(next_index))
    admit(q, s, next_index)
  else
    redis.call('HDEL', heads, group)
  end
end

-- Whether the head of a group, which no longer counts as delivered, now waits for an earlier one.
local function steps_back(q, s, index)
  local _, _, group = special_of(q, index)
  if group == '' then
    return false
  end
  local line = s.key .. ':line'
  local low, high = line_bounds(group)
  local following = redis.call('ZRANGEBYLEX', line, low, high, 'LIMIT', 0, 1)[1]
  local earlier = following and tonumber(string.sub(following, 42))
  if not earlier or earlier > index then
    return false
  end
  redis.call('ZREM', line, following)
  redis.call('ZADD', line, 0, line_member(group, index))
  redis.call('HSET', s.key .. ':heads', group, text(earlier))
  admit(q, s, earlier)
  return true
end

-- Put unsettled messages in their places: ready, waiting or line. For a plain subscription only the
-- odd ones, since the others are ahead.
local function place(q, s, start, stop)
  if s.plain and q.odd == '' then
    return
  end
  local odd = q.key .. ':odd'
  for _, run in ipairs(unsettled_within(q, s, start, stop)) do
    local odd_runs = q.odd ~= '' and runs_within(odd, run[1], run[2]) or {}
    if not s.plain then
      for _, part in ipairs(gaps(odd_runs, run[1], run[2])) do
        runs_add(s.key .. ':ready', PLAIN_LANE + part[1], PLAIN_LANE + part[2])
        tell(q)
      end
    end
    for _, part in ipairs(odd_runs) do
      for index = part[1], part[2] - 1 do
        admit(q, s, index)
      end
    end
  end
end

-- Move the consumer group's cursor to where the subscription is. A plain one reads on from there;
-- for others it only informs operators.
local function follow(s)
  if s.moved then
    s.moved = nil
    local at = s.plain and s.walk or s.reach
    redis.call('XGROUP', 'SETID', s.queue.stream, s.name, at > 0 and entry_id(at - 1) or '0',
      'ENTRIESREAD', text(at))
  end
end

local function set_walk(s, walk)
  if walk ~= s.walk then
    put(s, 'walk', walk)
    s.moved = true
  end
end

-- Let messages no longer wait for parents.
local function open(q, s, start, stop)
  for _, run in ipairs(matched_within(q, s, start, stop)) do
    for _, part in ipairs(runs_outside(s.key .. ':opened', run[1], run[2])) do
      runs_add(s.key .. ':opened', part[1], part[2])
      put(s, 'changed', q.now)
      place(q, s, part[1], part[2])
    end
  end
end

-- Parts of start..stop that this subscription does not hold back from its children. `dead_too`: nor
-- does it hold back its dead letters.
local function passed(q, s, start, stop, dead_too)
  local blocked = unsettled_within(q, s, start, stop)
  if not dead_too then
    for _, run in ipairs(runs_within(s.key .. ':dead', start, stop)) do
      blocked[#blocked + 1] = run
    end
  end
  return gaps(union(blocked), start, stop)
end

-- Open what all parents have passed. To be called when one of them has settled these indexes.
local function parents_passed(q, s, start, stop)
  local runs = {{start, stop}}
  for _, name in ipairs(s.parent_names) do
    local parent, left = load_reader(q, name), {}
    for _, run in ipairs(runs) do
      for _, part in ipairs(passed(q, parent, run[1], run[2], s.on_dead == 'ignore')) do
        left[#left + 1] = part
      end
    end
    runs = left
  end
  for _, run in ipairs(runs) do
    open(q, s, run[1], run[2])
  end
end

-- Runs of unsettled messages that parents hold back.
local function held_runs(q, s)
  local found = {}
  if #s.parent_names > 0 then
    for _, run in ipairs(unsettled_within(q, s, floor_of(q, s), q.next)) do
      for _, part in ipairs(runs_outside(s.key .. ':opened', run[1], run[2])) do
        found[#found + 1] = part
      end
    end
  end
  return found
end

-- Keys with a member for each message.
local EXCEPTIONS = {
  {suffix = ':leases', size = 'ZCARD', remove = 'ZREM', delivered = true},
  {suffix = ':tries', size = 'HLEN', remove = 'HDEL', delivered = true},
  {suffix = ':waiting', size = 'ZCARD', remove = 'ZREM'},
}

-- Remove messages from their places. `landed`: they were a flight, which is removed already.
local function forget(q, s, runs, landed)
  if redis.call('EXISTS', s.key .. ':heads') == 1 then
    -- First, because the next head of a group, which this makes ready, may be among them.
    for _, run in ipairs(runs) do
      for _, part in ipairs(runs_within(q.key .. ':odd', run[1], run[2])) do
        for index = part[1], part[2] - 1 do
          local _, _, group = special_of(q, index)
          if group ~= '' then
            leave_group(q, s, group, index)
          end
        end
      end
    end
  end
  local ready = s.key .. ':ready'
  if redis.call('EXISTS', ready) == 1 then
    for lane = q.odd ~= '' and 0 or PRIORITIES, PRIORITIES do
      for _, run in ipairs(runs) do
        runs_discard(ready, lane * LANE + run[1], lane * LANE + run[2])
      end
    end
  end
  local was_full = room_of(s) <= 0
  local delivered = {}
  if landed then
    for _, run in ipairs(runs) do
      for index = run[1], run[2] - 1 do
        delivered[#delivered + 1] = entry_id(index)
      end
    end
  else
    land(s)
  end
  for _, place in ipairs(landed and {} or EXCEPTIONS) do
    local key = s.key .. place.suffix
    local members = members_within(key, place, runs)
    if #members > 0 then
      call_many(place.remove, key, {}, members)
      if place.delivered then
        for _, member in ipairs(members) do
          delivered[#delivered + 1] = entry_id(tonumber(member))
        end
      end
    end
  end
  if #delivered > 0 then
    call_many('XACK', q.stream, {s.name}, delivered)
    if was_full then
      tell(q)
    end
  end
end

local function is_needed(q, index)
  if redis.call('HEXISTS', q.key .. ':pins', text(index)) == 1 then
    return true
  end
  for _, s in ipairs(each_reader(q)) do
    if not is_settled(q, s, index) then
      return true
    end
  end
  return false
end

-- Forget what is kept in runs about messages that are gone, and so settled everywhere. Otherwise it
-- would grow for as long as a single older message is kept.
local function forget_runs(q, runs)
  for _, run in ipairs(q.odd ~= '' and runs or {}) do
    runs_discard(q.key .. ':odd', run[1], run[2])
  end
  for _, s in ipairs(each_reader(q)) do
    local changes, has_dead = 0, redis.call('EXISTS', s.key .. ':dead') == 1
    for _, run in ipairs(runs) do
      if s.filtered then
        runs_discard(s.key .. ':matched', run[1], run[2])
      end
      if has_dead then
        changes = changes + runs_discard(s.key .. ':dead', run[1], run[2])
      end
      if #s.parent_names > 0 then
        changes = changes + runs_add(s.key .. ':opened', run[1], run[2])
      end
    end
    if changes > 0 then
      put(s, 'changed', q.now)
    end
  end
end

-- Delete stragglers that are settled everywhere and not pinned.
local function drop_stragglers(q, start, stop)
  local key = q.key .. ':stragglers'
  local dropped, ids = {}, {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, text(start), '(' .. text(stop))) do
    if not is_needed(q, tonumber(member)) then
      dropped[#dropped + 1] = member
      ids[#ids + 1] = entry_id(tonumber(member))
    end
  end
  if #dropped > 0 then
    call_many('ZREM', key, {}, dropped)
    call_many('XDEL', q.stream, {}, ids)
    forget_messages(q, dropped)
    for at, member in ipairs(dropped) do
      dropped[at] = tonumber(member)
    end
    forget_runs(q, runs_of(dropped))
  end
end

local letters_settled  -- defined in letters.lua

-- Settle messages; `way` is the counter that counts them. `landed`: as for `forget`.
local function settle(q, s, runs, way, landed, reason)
  local settled, matched = s.key .. ':settled', s.key .. ':matched'
  if q.events ~= '' and TOLD[way] then
    if not landed then
      land(s)
    end
    note_settled(q, s, runs, way, landed, reason)
  end
  forget(q, s, runs, landed)
  for _, run in ipairs(runs) do
    local start, stop = run[1], run[2]
    local new = runs_add(settled, start, stop)
    put(s, 'settled_total', s.settled_total + new)
    count(s, way, new)
    if s.filtered then
      -- What the filter rejects is settled, too: include it, so that runs merge.
      runs_add(settled, stop, runs_next(matched, stop) or q.next)
    end
    for _, name in ipairs(words(s.children)) do
      parents_passed(q, load_reader(q, name), start, stop)
    end
    if start < q.first then
      drop_stragglers(q, start, math.min(stop, q.first))
    end
  end
  if s.filtered then
    runs_add(settled, 0, floor_of(q, s))
  end
  if s.plain then
    set_walk(s, math.min(runs_next_gap(settled, s.walk), q.next))
  end
  if q.source ~= '' and s.name == 'default' then
    letters_settled(q, runs)
  end
end

-- Make messages ready that are due.
local function mature(q, s)
  local key = s.key .. ':waiting'
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', text(q.now), 'LIMIT', 0, MOST_AT_ONCE)
  if #due > 0 then
    call_many('ZREM', key, {}, due)
    put(s, 'changed', q.now)
    count(s, 'news', #due)
    for _, member in ipairs(due) do
      make_ready(q, s, tonumber(member))
    end
  end
end

-- End a script that may have changed something.
local function finish()
  for _, object in ipairs(changed) do
    follow(object)
    add_untold(object)
  end
  save()
end
