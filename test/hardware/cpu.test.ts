import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import t from 'tap'
import { readCpu, usableCores } from '#lib/hardware/cpu.js'
import { FakeRoot } from '../fixtures/machine.js'

const noTaskset = !existsSync('/usr/bin/taskset') && 'no taskset'

/** What usableCores says of a machine with these files of cgroups. */
function usable(cgroup: string, files: Record<string, string>): ReturnType<typeof usableCores> {
  const limits = Object.entries(files).map(([name, text]) => [`sys/fs/cgroup/${name}`, `${text}\n`])
  const root = new FakeRoot({ files: { 'proc/self/cgroup': cgroup, ...Object.fromEntries(limits) } })
  try {
    return usableCores(root.path)
  } finally {
    root.dispose()
  }
}

/** /proc/cpuinfo of ARM cores of these parts, of one implementer. */
const armCores = (parts: readonly string[], implementer = '0x41'): string =>
  parts
    .map((part, i) => `processor\t: ${i}\nCPU implementer\t: ${implementer}\nCPU part\t: ${part}\n`)
    .join('\n')

function modelOf(cpuinfo: string): string | null {
  const root = new FakeRoot({ files: { 'proc/cpuinfo': cpuinfo } })
  try {
    return readCpu(root.path).model
  } finally {
    root.dispose()
  }
}

t.test('names of processors', async t => {
  const spark = Array.from({ length: 20 }, (_, i) => (i % 10 < 5 ? '0xd87' : '0xd85'))
  t.equal(modelOf(armCores(spark)), '10 × Cortex-A725, 10 × Cortex-X925')
  t.equal(modelOf(armCores(['0xd4f', '0xd4f'])), 'Neoverse V2')
  t.equal(
    modelOf('processor\t: 0\nmodel name\t: AMD  EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n'),
    'AMD EPYC',
  )
  const own = modelOf('')
  t.ok(own === null || own.length > 0, 'that of Node where the system says nothing')
  t.equal(modelOf(armCores(['0xfff'])), own, 'a core of no known name')
  t.equal(modelOf(armCores(['0xd4f'], '0x61')), own, 'a core of another maker')
  t.equal(readCpu('/').cores, availableParallelism())
})

t.test('quotas of cgroup v2', async t => {
  const cores = availableParallelism()
  const v2 = (files: Record<string, string>) => usable('0::/a/b\n', files)
  t.same(v2({ 'a/b/cpu.max': 'max 100000' }), { cores, quota: null, threads: cores })
  t.same(v2({}), { cores, quota: null, threads: cores }, 'no controller')
  t.same(
    v2({ 'a/b/cpu.max': '150000 100000' }),
    { cores, quota: 1.5, threads: 1 },
    'a part of a core feeds none',
  )
  t.same(v2({ 'a/b/cpu.max': '20000 100000' }), { cores, quota: 0.2, threads: 1 }, 'one at least')
  t.same(
    v2({ 'a/b/cpu.max': '100000000 100000' }),
    { cores, quota: 1000, threads: cores },
    'more than there are',
  )
  t.equal(v2({ 'a/b/cpu.max': '400000 100000', 'a/cpu.max': '100000 50000' }).quota, 2, 'of a group above')
  t.equal(v2({ 'cpu.max': '300000 100000' }).quota, 3, 'that of a container, whose groups above are hidden')
  for (const text of ['', '-1 100000', '100000', '100000 0', 'lots of'])
    t.equal(v2({ 'a/b/cpu.max': text }).quota, null, text)
})

t.test('quotas of cgroup v1', async t => {
  const v1 = (quota: string) =>
    usable('4:memory:/a\n3:cpu,cpuacct:/a/b\n2:cpuset:/x\n', {
      'cpu/a/cpu.cfs_quota_us': quota,
      'cpu/a/cpu.cfs_period_us': '100000',
    }).quota
  t.equal(v1('250000'), 2.5)
  t.equal(v1('-1'), null)
})

t.test('an affinity', { skip: noTaskset }, async t => {
  const script =
    "import { usableCores } from '#lib/hardware/cpu.js'; console.log(usableCores('/nonexistent'))"
  const options = ['--input-type=module', '-e', script]
  const text = execFileSync('taskset', ['-c', '0', process.execPath, ...options], { encoding: 'utf8' })
  t.equal(text, '{ cores: 1, quota: null, threads: 1 }\n')
})
