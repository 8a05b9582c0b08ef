import t, { type Test } from 'tap'
import { machineMemory, parseMeminfo, unifiedMemoryFree } from '#lib/hardware/memory.js'
import { FakeRoot } from '../fixtures/machine.js'
import { garbage } from '../fixtures/values/garbage.js'

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

function rooted(t: Test, text: string, files: Record<string, string> = {}): string {
  const root = new FakeRoot({ files: { 'proc/meminfo': text, ...files } })
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

t.test('the limit of a container or service', async t => {
  const limited = (group: string, files: Record<string, string>) =>
    machineMemory(
      rooted(t, meminfo, {
        'proc/self/cgroup': `1:name=systemd:/old\n0::${group}\n`,
        ...Object.fromEntries(Object.entries(files).map(([name, text]) => [`sys/fs/cgroup/${name}`, text])),
      }),
    )
  const service = {
    'a/b/memory.max': '8000000000\n',
    'a/b/memory.current': '5000000000\n',
    'a/b/memory.stat': 'anon 4\ninactive_file 1000000000\nactive_file 7\n',
  }
  t.same(limited('/a/b', service), { total: 8e9, available: 4e9, source: 'cgroup' })
  t.same(limited('/a/b/c', service), { total: 8e9, available: 4e9, source: 'cgroup' }, 'of a group above')
  t.equal(limited('/a', service).source, 'meminfo', 'not of a group below')
  t.equal(limited('/', service).source, 'meminfo')
  t.equal(limited('/a/b', { ...service, 'a/b/memory.max': 'max\n' }).source, 'meminfo')
  t.equal(
    limited('/a/b', { ...service, 'a/b/memory.max': '900000000000\n' }).source,
    'meminfo',
    'above what there is',
  )
  const full = { ...service, 'a/memory.max': '6000000000\n', 'a/memory.current': '6000000001\n' }
  t.same(limited('/a/b', full), { total: 6e9, available: 0, source: 'cgroup' }, 'the tightest counts')
  for (const group of ['/../../x', '', 'relative', '/a//b/'])
    t.ok(limited(group, service).available > 0, group)
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
