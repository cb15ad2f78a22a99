#!lua
-- Publishes a batch of messages: all of them or none.
--
-- KEYS[1]  the queue's hash; writes its :stream, :odd, :special, :expires, :expiring, :dedup,
--          :requests and :dedup_times, and the keys of subscriptions that do not find all messages
--          by their cursor
-- ARGV[1]  the time in microseconds if a test or ARGV[5] needs a certain one, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  packed: {position = {priority, due, group, expiry, dedup key}} of messages that have any
-- ARGV[4]  packed: {feed = {bounds of the matching positions, number of errors}}. A feed is the
--          name of a subscription with a filter, or + and the id of a reserved filter.
-- ARGV[5]  index:count if a filter looks at ids, which depend on index and time: nothing is stored
--          unless the first new message gets this index, there are this many duplicates, and the
--          time is that of ARGV[1]; or empty
-- ARGV[6]  the idempotency key of the batch, or empty
-- ARGV[7]  2 if every body is followed by its envelope, otherwise 1
-- ARGV[8]  for an events queue, told:count: how many entries of :untold were told before, and how
--          many this batch tells; or empty
-- ARGV[9…] bodies
-- Returns  ok, created, first index, {position, index, created, ...} of duplicates, with
--          index and created of the original;
--          full and why;
--          late and the setting by which a message would expire before it is due;
--          reused and the former number, if the key was used for another number of messages;
--          again and what ok returned, if it was used for as many;
--          moved, next index, time and duplicates, if ARGV[5] does not hold;
--          or told, if another server has told these events
-- uses: runs queue reader letters time
local q, refusal = begin()
if not q then
  return refusal
end
local stride = tonumber(ARGV[7])
local total = (#ARGV - 8) / stride
local function body_at(position)
  return ARGV[9 + (position - 1) * stride]
end
local function head_at(position)
  return stride == 2 and ARGV[10 + (position - 1) * stride] or ''
end
local told, telling = string.match(ARGV[8], '^(%d+):(%d+)$')
if telling and (redis.call('HGET', q.key, 'told') or '0') ~= told then
  return {'told'}
end

-- A repeated request gets its first answer again.
local requests = q.key .. ':requests'
local past = ARGV[6] ~= '' and redis.call('HGET', requests, ARGV[6])
if past then
  local created, count, first, found = unpack(cmsgpack.unpack(past))
  if created > q.now - q.dedup then
    if count ~= total then
      return {'reused', count}
    end
    q.counts = {duplicates = total}
    save()
    return {'again', created, first, found}
  end
end

-- Tell new messages from duplicates.
local extras = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3]) or {}
local duplicates, index_of, added, size = {}, {}, 0, 0
local new_keys = {}
for position = 1, total do
  local extra = extras[position]
  local key, original, created = extra and extra[5] or '', nil, nil
  if key ~= '' then
    if new_keys[key] then
      original, created = new_keys[key], q.now
    else
      local seen = redis.call('HGET', q.key .. ':dedup', key)
      if seen then
        local index, time = string.match(seen, '^(%d+):(%d+)$')
        if tonumber(time) > q.now - q.dedup and holds(q, tonumber(index)) then
          original, created = tonumber(index), tonumber(time)
        end
      end
    end
  end
  if original then
    duplicates[#duplicates + 1] = position
    duplicates[#duplicates + 1] = original
    duplicates[#duplicates + 1] = created
  else
    index_of[position] = q.next + added
    if key ~= '' then
      new_keys[key] = q.next + added
    end
    added = added + 1
    size = size + #body_at(position) + #head_at(position)
  end
end
if ARGV[5] ~= '' and (ARGV[5] ~= text(q.next) .. ':' .. #duplicates / 3
    or q.now > (tonumber(ARGV[1]) or 0)) then
  return {'moved', q.next, q.now, duplicates}
end

-- Refuse the batch if a message would expire before it is due.
local latest = q.now
for position, extra in pairs(extras) do
  latest = index_of[position] and math.max(latest, extra[2]) or latest
end
if q.ttl and latest >= q.now + q.ttl then
  return {'late', 'message_ttl_seconds'}
end
if q.retention and q.retain == '' and latest > q.now + q.retention then
  return {'late', 'retention_seconds'}
end

-- Refuse the batch if the queue would exceed its bounds.
local function excess()
  if q.max_messages then
    local most = 0
    for _, s in ipairs(each_reader(q)) do
      most = math.max(most, unsettled_count(q, s))
    end
    if most + added > q.max_messages then
      return {'full', 'messages', most, q.max_messages, added}
    end
  end
  if q.max_bytes then
    local floor = q.next
    for _, s in ipairs(each_reader(q)) do
      floor = math.min(floor, floor_of(q, s))
    end
    local bytes = bytes_from(q, floor)
    if bytes + size > q.max_bytes then
      return {'full', 'bytes', bytes, q.max_bytes, size}
    end
  end
end
if added > 0 and not telling and excess() then
  expire(q)  -- expired messages make room
  local why = excess()
  if why then
    finish()
    return why
  end
end

-- Store the new messages.
local first, created, before = q.next, text(q.now), text(q.bytes)
local has_odd = false
for position = 1, total do
  local index = index_of[position]
  if index then
    local head = head_at(position)
    if head == '' then
      redis.call('XADD', q.stream, entry_id(index), 't', created, 's', before, 'b',
        body_at(position))
    else
      redis.call('XADD', q.stream, entry_id(index), 't', created, 's', before, 'b',
        body_at(position), 'h', head)
    end
    local extra = extras[position]
    if extra then
      has_odd = set_apart(q, index, created, extra, extra[2] > q.now and extra[2] or 0) or has_odd
    end
  end
end
put(q, 'next', first + added)
put(q, 'bytes', q.bytes + size)
if telling then
  put(q, 'told', tonumber(told) + tonumber(telling))
  redis.call('LTRIM', string.sub(q.key, 1, -#'-events' - 1) .. ':untold', telling, -1)
end
if q.events ~= '' then
  for position = 1, total do
    if index_of[position] then
      local head = head_at(position)
      local topic = head ~= '' and cmsgpack.unpack(head).t or ''
      local index = index_of[position]
      note(q, 'published', index, index + 1, created, '', 0, '', topic)
    end
  end
end
if ARGV[6] ~= '' and added > 0 then
  redis.call('HSET', requests, ARGV[6], cmsgpack.pack({q.now, total, first, duplicates}))
  redis.call('ZADD', q.key .. ':dedup_times', created, 'r' .. ARGV[6])
end
if #duplicates > 0 then
  q.counts = {duplicates = #duplicates / 3}
end

-- Place them in the subscriptions that do not find them by their cursor.
local matches = ARGV[4] ~= '' and cmsgpack.unpack(ARGV[4]) or {}
for feed, found in pairs(matches) do
  local indexes = {}
  for at = 1, #found[1], 2 do
    for position = found[1][at], found[1][at + 1] - 1 do
      indexes[#indexes + 1] = index_of[position]
    end
  end
  local is_pending = string.sub(feed, 1, 1) == '+'
  local key = is_pending and q.key .. ':f:' .. string.sub(feed, 2) or q.key .. ':s:' .. feed
  for _, run in ipairs(runs_of(indexes)) do
    runs_add(key .. ':matched', run[1], run[2])
  end
  if not is_pending then
    local s = load_reader(q, feed)
    put(s, 'matched_total', s.matched_total + #indexes)
    count(s, 'filter_errors', found[2])
  end
end
if added > 0 then
  if has_odd or next(matches) or q.dependents ~= '' then
    for _, s in ipairs(each_reader(q)) do
      if #s.parent_names == 0 then
        place(q, s, first, q.next)
      else
        -- No parent has settled them yet, so it gets at once only what the filter of every parent
        -- rejects.
        local all_filtered = true
        for _, name in ipairs(s.parent_names) do
          all_filtered = all_filtered and load_reader(q, name).filtered
        end
        if all_filtered then
          parents_passed(q, s, first, q.next)
        end
      end
    end
  end
  tell(q, text(added))
end
finish()
return {'ok', tonumber(created), first, duplicates}
