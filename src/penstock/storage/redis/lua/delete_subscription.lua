#!lua flags=allow-oom
-- Deletes a subscription. Messages that no other parent holds back are released.
--
-- KEYS[1]  the queue's hash; removes the subscription's keys and its consumer group, writes the
--          keys of its children
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the next version
-- ARGV[4]  the subscription
-- ARGV[5]  packed: {name = new config} of its children
-- Returns  ok
-- uses: runs queue reader letters time family
local q, refusal = begin()
if not q then
  return refusal
end
local configs = cmsgpack.unpack(ARGV[5])
local names = {}
for _, name in ipairs(words(q.subs)) do
  if name ~= ARGV[4] then
    names[#names + 1] = name
  end
end
put(q, 'subs', table.concat(names, ' '))
put(q, 'version', ARGV[3])
for name, config in pairs(configs) do
  local child, parents = load_reader(q, name), {}
  put(child, 'config', config)
  for _, parent in ipairs(child.parent_names) do
    if parent ~= ARGV[4] then
      parents[#parents + 1] = parent
    end
  end
  link(q, child, parents)
end
local gone = load_reader(q, ARGV[4])
if #gone.parent_names > 0 then
  leave_parents(q, gone)
  note_dependents(q)
end
drop_keys(q.key .. ':s:' .. ARGV[4], READER_KEYS)
redis.call('XGROUP', 'DESTROY', q.stream, ARGV[4])
drop_stragglers(q, 0, q.first)
for name in pairs(configs) do
  cascade(q, load_reader(q, name))
end
tell(q)
finish()
return {'ok'}
