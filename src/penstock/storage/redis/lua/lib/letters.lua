-- Dead letters are in a queue of their own, <queue>-dlq, which is created with the first one. A
-- dead letter is a copy of the message that failed, with the reason. The message itself is pinned,
-- so that a replay can bring it back at its own index.

local function make_reader(q, name, fields, start)
  local key = q.key .. ':s:' .. name
  redis.call('HSET', key, unpack(fields))
  redis.call('HSET', key, 'created', text(q.now), 'start', text(start), 'walk', text(start),
    'top', text(start), 'reach', text(start), 'polled', text(start), 'passed', text(start), 'gen', 1, 'epoch', 1,
    'matched_total', 0, 'settled_total', 0)
  if start > 0 then
    redis.call('ZADD', key .. ':settled', 0, text(start))
  end
  redis.call('XGROUP', 'CREATE', q.stream, name, start > 0 and entry_id(start - 1) or '0',
    'MKSTREAM', 'ENTRIESREAD', text(start))
  put(q, 'subs', q.subs == '' and name or q.subs .. ' ' .. name)
  return load_reader(q, name)
end

local function make_queue(key, fields, default, now)
  redis.call('HSET', key, unpack(fields))
  redis.call('HSET', key, 'created', text(now), 'now', text(now), 'next', 0, 'first', 0, 'bytes', 0,
    'ttl_checked', 0)
  local q = load_queue(key)
  if default then
    make_reader(q, 'default', default, 0)
  end
  return q
end

-- Create a queue from {fields, fields of its `default` or false, and the same two for its
-- dead-letter queue}, which are kept until the first dead letter.
local function make_with_letters(key, as, now)
  local q = make_queue(key, as[1], as[2], now)
  redis.call('HSET', key, 'letters_as', cmsgpack.pack({as[3], as[4]}))
  return q
end

-- Create an events queue, if it does not exist. False if another queue has its name.
local function make_events(key, as, now)
  if redis.call('HEXISTS', key, 'observed') == 1 then
    return true
  end
  if redis.call('EXISTS', key) == 1 then
    return false
  end
  make_with_letters(key, as, now)
  return true
end

-- The dead-letter queue, which is created if it does not exist.
local function letters_of(q)
  if not q.letters then
    local key = q.key .. '-dlq'
    if q.dlq == '' then
      local as = cmsgpack.unpack(redis.call('HGET', q.key, 'letters_as'))
      q.letters = make_queue(key, as[1], as[2], q.now)
      put(q, 'dlq', '1')
    else
      q.letters = load_queue(key)
    end
    q.letters.origin = q
    if q.now > q.letters.now then
      put(q.letters, 'now', q.now)
    end
  end
  return q.letters
end

-- Remove the record of dead letters that were settled, and unpin their messages.
letters_settled = function(letters, runs)
  if not letters.origin then
    letters.origin = load_queue(string.sub(letters.key, 1, -5))
    letters.origin.letters = letters
  end
  local q = letters.origin
  local key = letters.key .. ':letters'
  for _, member in ipairs(members_within(key, {size = 'HLEN'}, runs)) do
    local letter = redis.call('HGET', key, member)
    if letter then
      local origin = string.match(letter, ':(%d+)$')
      redis.call('HDEL', key, member)
      if redis.call('HINCRBY', q.key .. ':pins', origin, -1) <= 0 then
        redis.call('HDEL', q.key .. ':pins', origin)
        if tonumber(origin) < q.first then
          drop_stragglers(q, tonumber(origin), tonumber(origin) + 1)
        end
      end
    end
  end
end

-- Dead-letter a message, also for children that hold it and whose `on_dead` is cascade.
local function bury(q, s, index, reason)
  local letters = letters_of(q)
  local entry = entry_at(q, index)
  local fields = {'t', text(q.now), 's', text(letters.bytes)}
  for _, name in ipairs({'b', 'h'}) do
    local value = entry and entry_field(entry, name)
    if value then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  local deliveries = deliveries_of(s, index)
  for _, value in ipairs({
    'subscription', s.name, 'index', text(index), 'deliveries', text(deliveries),
    'reason', reason, 'created', entry and entry_field(entry, 't') or text(q.now),
  }) do
    fields[#fields + 1] = value
  end
  redis.call('XADD', letters.stream, entry_id(letters.next), unpack(fields))
  redis.call('HSET', letters.key .. ':letters', text(letters.next), s.id .. ':' .. text(index))
  redis.call('HINCRBY', q.key .. ':pins', text(index), 1)
  put(letters, 'next', letters.next + 1)
  tell(letters)
  runs_add(s.key .. ':dead', index, index + 1)
  settle(q, s, {{index, index + 1}}, 'dead_lettered', false, reason)
  for _, name in ipairs(words(s.children)) do
    local child = load_reader(q, name)
    if child.on_dead == 'cascade' and not runs_has(child.key .. ':opened', index)
        and not is_settled(q, child, index) then
      bury(q, child, index, 'dead-lettered by ' .. s.name)
    end
  end
end

-- If `on_dead` is cascade, dead-letter held messages that parents have dead-lettered. `bury` does
-- so at that time; this is for messages that are held only since then.
local function cascade(q, s)
  if s.on_dead ~= 'cascade' or #s.parent_names == 0 then
    return
  end
  for _, run in ipairs(held_runs(q, s)) do
    local dead = {}
    for _, name in ipairs(s.parent_names) do
      for _, part in ipairs(runs_within(q.key .. ':s:' .. name .. ':dead', run[1], run[2])) do
        dead[#dead + 1] = part
      end
    end
    for _, part in ipairs(union(dead)) do
      for index = part[1], part[2] - 1 do
        bury(q, s, index, 'dead-lettered before')
      end
    end
  end
end

-- Replay a dead letter: the message is unsettled, as if never delivered. False if it was none.
local function revive(q, s, index)
  if runs_discard(s.key .. ':dead', index, index + 1) == 0 then
    return false
  end
  runs_discard(s.key .. ':settled', index, index + 1)
  put(s, 'settled_total', s.settled_total - 1)
  count(s, 'replayed', 1)
  note_one(q, s, 'replayed', index)
  -- With an entry in :tries the next delivery gets a new epoch, so former receipts stay void.
  set_tried(s, index, 0, s.gen, false, '')
  if #s.parent_names > 0 and not runs_has(s.key .. ':opened', index) then
    parents_passed(q, s, index, index + 1)
  else
    admit(q, s, index)
  end
  return true
end
