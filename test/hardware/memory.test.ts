import t, { type Test } from 'tap'
import { machineMemory, parseMeminfo, unifiedMemoryFree } from '#lib/hardware/memory.js'
import { garbage } from '../fixtures/garbage.js'
import { FakeRoot } from '../fixtures/machine.js'

const meminfo = [
  'MemTotal:       127535932 kB',
  'MemFree:         3022768 kB',
  'MemAvailable:   101234567 kB',
  'Active(anon):    1234567 kB',
  'SwapFree:       16777212 kB',
  'HugePages_Total:       0',
  'HugePages_Free:        0',
  'Hugepagesize:       2048 kB',
  '',
].join('\n')

function rooted(t: Test, text: string): string {
  const root = new FakeRoot({ files: { 'proc/meminfo': text } })
  t.teardown(() => root.dispose())
  return root.path
}

t.test('sizes become bytes, counts stay', async t => {
  const fields = parseMeminfo(meminfo)
  t.equal(fields.get('MemTotal'), 127535932 * 1024)
  t.equal(fields.get('Active(anon)'), 1234567 * 1024)
  t.equal(fields.get('HugePages_Total'), 0)
})

t.test('the kernel says what is available, not what is free', async t => {
  const root = rooted(t, meminfo)
  t.same(machineMemory(root), { total: 127535932 * 1024, available: 101234567 * 1024, source: 'meminfo' })
  t.equal(unifiedMemoryFree(root), 101234567 * 1024)
})

t.test('reserved huge pages are all a unified GPU can have', async t => {
  const text = meminfo
    .replace('HugePages_Total:       0', 'HugePages_Total:   7777')
    .replace('HugePages_Free:        0', 'HugePages_Free:    4321')
  const root = rooted(t, text)
  t.equal(unifiedMemoryFree(root), 4321 * 2048 * 1024)
  t.equal(machineMemory(root).available, 101234567 * 1024, 'the machine itself keeps its own measure')
  t.equal(unifiedMemoryFree(rooted(t, text.replace(/Hugepagesize.*/, ''))), 0, 'of an unknown size: none')
})

t.test('without a readable meminfo the operating system answers', async t => {
  for (const root of ['/nonexistent', rooted(t, 'MemTotal: lots\n'), rooted(t, 'MemTotal: 5 kB\n')]) {
    const memory = machineMemory(root)
    t.equal(memory.source, 'os')
    t.ok(memory.total > 0 && memory.available > 0)
    t.equal(unifiedMemoryFree(root), null)
  }
})

t.test('available is never more than the total', async t => {
  const root = rooted(t, 'MemTotal: 100 kB\nMemAvailable: 101 kB\n')
  t.equal(machineMemory(root).available, 100 * 1024)
})

t.test('no meminfo makes the parser throw', async t => {
  for (const text of garbage(meminfo, 2000, 7)) {
    for (const value of parseMeminfo(text).values()) {
      if (!Number.isSafeInteger(value) || value < 0) t.fail(`${value} from ${JSON.stringify(text)}`)
    }
  }
})
