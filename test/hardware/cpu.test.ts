import { availableParallelism } from 'node:os'
import t from 'tap'
import { readCpu } from '#lib/hardware/cpu.js'
import { FakeRoot } from '../fixtures/machine.js'

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
