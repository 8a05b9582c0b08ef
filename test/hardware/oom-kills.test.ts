import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t, { type Test } from 'tap'
import { type OomKills, oomKills } from '#lib/hardware/oom-kills.js'
import { FakeRoot } from '../fixtures/machine.js'
import { garbage } from '../fixtures/values/garbage.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')

function rooted(t: Test, lines: string, files: Record<string, string>): string {
  const groups = Object.entries(files).map(([name, text]) => [`sys/fs/cgroup/${name}`, text])
  const root = new FakeRoot({ files: { 'proc/self/cgroup': lines, ...Object.fromEntries(groups) } })
  t.teardown(() => root.dispose())
  return root.path
}

const kills = (t: Test, lines: string, files: Record<string, string>): OomKills | null =>
  oomKills(rooted(t, lines, files))

const events = (count: number, max = 0): string =>
  `low 0\nhigh 0\nmax ${max}\noom 9\noom_kill ${count}\noom_group_kill 0\n`

t.test('cgroup v2', async t => {
  const service = {
    'a/b/memory.events': events(3, 41),
    'a/b/memory.max': '8589934592\n',
    'a/memory.events': events(5),
  }
  t.same(kills(t, '0::/a/b\n', service), { kills: 3, isOwn: true, limitReached: 41, limit: 2 ** 33 })
  t.match(kills(t, '0::/a/b/c\n', service), { kills: 3, limit: 2 ** 33 }, 'of a group above')
  t.match(kills(t, '0::/a\n', service), { kills: 5, isOwn: true, limit: null }, 'not of a group below')
  const above = {
    ...service,
    'a/b/memory.events': events(0),
    'a/b/memory.max': 'max\n',
    'a/memory.max': '1000\n',
  }
  t.same(kills(t, '0::/a/b\n', above), { kills: 5, isOwn: false, limitReached: 0, limit: 1000 })
  t.same(kills(t, '0::/\n', { 'memory.events': events(0) }), {
    kills: 0,
    isOwn: true,
    limitReached: 0,
    limit: null,
  })
})

t.test('cgroup v1', async t => {
  const lines = '4:memory:/docker/x\n1:cpu:/docker/x\n0::/\n'
  const control = 'oom_kill_disable 0\nunder_oom 0\noom_kill 2\n'
  const inside = {
    'memory/memory.oom_control': control,
    'memory/memory.failcnt': '77\n',
    'memory/memory.limit_in_bytes': '4000000000\n',
  }
  t.same(kills(t, lines, inside), { kills: 2, isOwn: true, limitReached: 77, limit: 4e9 }, 'in a container')
  const unlimited = { ...inside, 'memory/memory.limit_in_bytes': '9223372036854771712\n' }
  t.equal(kills(t, lines, unlimited)?.limit, null)
  const old = { ...inside, 'memory/memory.oom_control': 'oom_kill_disable 0\nunder_oom 0\n' }
  t.equal(kills(t, lines, old), null, 'a kernel before 4.13 does not count')
})

t.test('nothing that counts', async t => {
  t.equal(oomKills('/nonexistent'), null)
  t.equal(kills(t, '', { 'memory.events': events(1) }), null)
  t.equal(kills(t, '0::/a\n', {}), null)
  for (const text of ['', 'oom_kill', 'oom_kill x\n', 'oom_kill -1\n', 'oom_killed 4\n', 'oom_kill 1e3\n'])
    t.equal(kills(t, '0::/a\n', { 'a/memory.events': text }), null, text)
  for (const text of garbage(events(3, 41), 200, 5)) {
    const found = kills(t, '0::/\n', { 'memory.events': text })?.kills ?? 0
    if (!Number.isSafeInteger(found) || found < 0) t.fail(`${found} from ${JSON.stringify(text)}`)
  }
})

t.test('check says how many and what to reduce', async t => {
  const check = (files: Record<string, string>) => {
    const root = rooted(t, '0::/job\n', files)
    const env = { PATH: process.env.PATH!, HOME: process.env.HOME ?? '', DGX_SPARK_SYSFS_ROOT: root }
    const options = { encoding: 'utf8', env } as const
    const { stdout } = spawnSync(process.execPath, ['--no-warnings', main, 'check', '--json'], options)
    return JSON.parse(stdout).find(({ name }: { name: string }) => name === 'killed for memory')
  }
  const limited = { 'job/memory.events': events(2, 12), 'job/memory.max': '8589934592\n' }
  t.same(check(limited), {
    name: 'killed for memory',
    status: 'note',
    found: '2 processes of this control group (with a limit of 8.0 GiB); the limit was reached 12 times',
    next:
      "reduce the batch (accumulate keeps its effect), use precision 'bf16' or memory: 'small' in Model.load, in training " +
      'memoryBudget, which recomputes parts of the forward pass instead of keeping them; or raise the limit of 8.0 GiB ' +
      '(8589934592 bytes): docker run --memory, MemoryMax of systemd',
  })
  t.match(check({ 'job/memory.events': events(1) }), {
    found: '1 process of this control group (without a limit of its own)',
    next: /or end other programs/,
  })
  t.match(check({ 'job/memory.events': events(0) }), { status: 'ok', found: /^no process of this/ })
  t.match(check({}), { status: 'ok', found: 'not counted here' })
})
