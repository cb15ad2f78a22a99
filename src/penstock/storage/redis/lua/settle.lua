#!lua flags=allow-oom
-- Acks, nacks, extends and gives back deliveries of one subscription.
--
-- KEYS[1]  the queue's hash; writes the keys of the subscription, its children and the dead-letter
--          queue
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4]  packed: settlements, each one of
--            {'ack', targets}
--            {'nack', targets, delay in microseconds or -1 for the backoff, reason, random numbers}
--            {'extend', targets, microseconds, latest}: the lease ends so long from now if latest
--            is -1; otherwise so much later than it would, but at most latest from now
--            {'give back', targets}
--            {'up to', index}: acks everything below it
--          Targets are {index, epoch or -1, created in milliseconds or -1, ...}: a receipt has an
--          epoch, an id a time of creation. Index -1 is not found. {run = {start, stop, epoch}}
--          stands for consecutive receipts of one epoch.
-- Returns  ok, and for each settlement a string with a digit for each target: 0 done, 1 settled
--          already, 2 not leased, 3 not found; for `up to` the number of messages acked
-- first: fast_ack
-- uses: runs queue reader letters time
local DONE, ALREADY, NOT_LEASED, NOT_FOUND = '0', '1', '2', '3'
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])

local function is_found(index, created_ms)
  if index < 0 or index >= q.next then
    return false
  end
  if created_ms < 0 then
    return true
  end
  local entry = holds(q, index) and entry_at(q, index)
  return entry and math.floor(tonumber(entry_field(entry, 't')) / 1000) == created_ms
end

-- Iterate over targets: index or -1 if it is not found, whether this delivery is in flight, whether
-- a late ack of it counts, epoch.
local function each_target(targets)
  land(s)
  local members, scores = {}, {}
  for at = 1, #targets, 3 do
    members[#members + 1] = text(targets[at])
  end
  for at = 1, #members, MOST_ARGUMENTS do
    local last = math.min(#members, at + MOST_ARGUMENTS - 1)
    for i, score in ipairs(redis.call('ZMSCORE', s.key .. ':leases', unpack(members, at, last))) do
      scores[at + i - 1] = score
    end
  end
  local knows_some = redis.call('EXISTS', s.key .. ':tries') == 1
  local position = 0
  return function()
    position = position + 1
    local at = 3 * position - 2
    if not targets[at] then
      return nil
    end
    local index, epoch, created_ms = targets[at], targets[at + 1], targets[at + 2]
    if not is_found(index, created_ms) then
      return -1, false, false, epoch
    end
    local own, late = s.gen, false
    if knows_some then
      local deliveries, last, is_late = tried(s, index)
      if deliveries then
        own, late = last, is_late
      end
    end
    local is_same = epoch < 0 or own == epoch
    return index, scores[position] and is_same, late and is_same, epoch
  end
end

-- The usual case: ack all that one receive returned, while it is still one flight. Outcomes; false
-- if there is no such flight.
local function ack_flight(start, stop, epoch)
  local member = flight_member(start, stop)
  if epoch ~= s.gen or redis.call('ZREM', s.key .. ':flights', member) == 0 then
    return false
  end
  put(s, 'last_ack', q.now)
  settle(q, s, {{start, stop}}, 'acked', true)
  put(s, 'flying', s.flying - (stop - start))
  return string.rep(DONE, stop - start)
end

local function ack(targets)
  if targets.run then
    local outcomes = ack_flight(targets.run[1], targets.run[2], targets.run[3])
    if outcomes then
      return outcomes
    end
    local start, stop, epoch = unpack(targets.run)
    for index = start, stop - 1 do
      targets[#targets + 1] = index
      targets[#targets + 1] = epoch
      targets[#targets + 1] = -1
    end
  end
  local outcomes, done = {}, {}
  for index, leased, late, epoch in each_target(targets) do
    local outcome
    if index < 0 then
      outcome = NOT_FOUND
    elseif leased then
      outcome = DONE
    elseif runs_has(s.key .. ':settled', index) then
      outcome = ALREADY
    elseif epoch < 0 then
      outcome = is_settled(q, s, index) and ALREADY or DONE
    else
      outcome = late and DONE or NOT_LEASED
    end
    outcomes[#outcomes + 1] = outcome
    if outcome == DONE then
      done[#done + 1] = index
    end
  end
  if #done > 0 then
    put(s, 'last_ack', q.now)
    settle(q, s, runs_of(done), 'acked')
  end
  return table.concat(outcomes)
end

-- Outcomes of all targets; and of those in flight, each once, the indexes and their positions.
local function leased_targets(targets)
  end_leases(q, s)
  local outcomes, indexes, positions, seen = {}, {}, {}, {}
  for index, leased in each_target(targets) do
    local outcome = NOT_LEASED
    if index < 0 then
      outcome = NOT_FOUND
    elseif leased then
      outcome = DONE
      if not seen[index] then
        seen[index] = true
        indexes[#indexes + 1] = index
        positions[#positions + 1] = #outcomes + 1
      end
    elseif is_settled(q, s, index) then
      outcome = ALREADY
    end
    outcomes[#outcomes + 1] = outcome
  end
  return table.concat(outcomes), indexes, positions
end

-- The delay in microseconds after this many deliveries.
local function backoff(deliveries, random)
  local delay = s.backoff_base
  if delay > 0 and s.backoff_factor then
    delay = math.min(delay * s.backoff_factor ^ (deliveries - 1), s.backoff_max)
  end
  return math.floor(delay * (1 - s.jitter * (random or 0)) + 0.5)
end

local function nack(targets, delay, reason, randoms)
  local outcomes, indexes, positions = leased_targets(targets)
  for at, index in ipairs(indexes) do
    if not bury_or(q, s, index, reason) then
      local deliveries, epoch, _, last = tried(s, index)
      local wait = delay
      if wait < 0 then
        wait = backoff(deliveries or 1, randoms[positions[at]])
      end
      note_one(q, s, 'nacked', index, deliveries or 1, reason)
      redis.call('ZREM', s.key .. ':leases', text(index))
      set_tried(s, index, deliveries or 1, epoch or s.gen, false,
        reason ~= '' and reason or last or '')
      wait_until(q, s, index, wait > 0 and q.now + wait or 0)
      count(s, 'nacked', 1)
    end
  end
  return outcomes
end

local function extend(targets, microseconds, latest)
  local outcomes, indexes = leased_targets(targets)
  local scores = {}
  for _, index in ipairs(indexes) do
    local deadline = q.now + microseconds
    if latest >= 0 then
      local now_ends = tonumber(redis.call('ZSCORE', s.key .. ':leases', text(index)))
      deadline = now_ends < math.huge and math.min(now_ends + microseconds, q.now + latest)
    end
    if deadline then
      scores[#scores + 1] = text(deadline)
      scores[#scores + 1] = text(index)
    end
  end
  call_many('ZADD', s.key .. ':leases', {'XX'}, scores)
  if #indexes > 0 then
    tell(q)  -- a lease may end earlier than before, and receivers wait for that
  end
  return outcomes
end

-- Undo deliveries that nobody got: their messages are as before, except that the epoch is never
-- used again.
local function give_back(targets)
  local outcomes, indexes = leased_targets(targets)
  for _, index in ipairs(indexes) do
    local time = (q.ttl or q.expires ~= '') and expires_at(q, index)
    if time and time <= q.now then
      settle(q, s, {{index, index + 1}}, 'expired')
    else
      local deliveries, epoch, _, reason = tried(s, index)
      note_one(q, s, 'returned', index, deliveries or 1)
      deliveries = (deliveries or 1) - 1
      redis.call('ZREM', s.key .. ':leases', text(index))
      set_tried(s, index, deliveries, epoch or s.gen, false, reason or '')
      if deliveries == 0 then
        redis.call('XACK', q.stream, s.name, entry_id(index))
      end
      if deliveries > 0 or not steps_back(q, s, index) then
        make_ready(q, s, index)
      end
      count(s, 'returned', 1)
    end
  end
  return outcomes
end

-- Ack everything below an index, delivered or not, except what parents hold back; how many.
local function ack_up_to(index)
  local runs = unsettled_within(q, s, floor_of(q, s), math.min(index, q.next))
  if #s.parent_names > 0 then
    local opened = {}
    for _, run in ipairs(runs) do
      for _, part in ipairs(runs_within(s.key .. ':opened', run[1], run[2])) do
        opened[#opened + 1] = part
      end
    end
    runs = opened
  end
  if #runs > 0 then
    put(s, 'last_ack', q.now)
    settle(q, s, runs, 'acked')
  end
  return runs_count(runs)
end

local answers = {'ok'}
for _, one in ipairs(cmsgpack.unpack(ARGV[4])) do
  local kind = one[1]
  if kind == 'ack' then
    answers[#answers + 1] = ack(one[2])
  elseif kind == 'nack' then
    answers[#answers + 1] = nack(one[2], one[3], one[4], one[5])
  elseif kind == 'extend' then
    answers[#answers + 1] = extend(one[2], one[3], one[4])
  elseif kind == 'give back' then
    answers[#answers + 1] = give_back(one[2])
  else
    answers[#answers + 1] = ack_up_to(one[2])
  end
end
finish()
return answers
