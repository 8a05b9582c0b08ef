// Sectors of global memory that the warps of kernels on the host touch.
import { readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { buildOnHost, noHostCompiler, runOnHost } from '../fixtures/cuda-on-host/cuda-on-host.js'

/** Kernels that 32 threads run, and requests, bytes, sectors and ideal sectors of their loads and stores. */
const kernels = [
  ['contiguous', [1, 128, 4, 4], [1, 128, 4, 4]],
  ['every_other', [1, 128, 8, 4], [1, 128, 4, 4]],
  ['misaligned', [1, 128, 5, 4], [1, 128, 4, 4]],
  ['one_for_all', [1, 4, 1, 1], [1, 128, 4, 4]],
  ['diverges', [2, 192, 6, 6], [1, 128, 4, 4]],
  ['copies', [1, 256, 8, 8], [1, 128, 4, 4]],
] as const

const totals = ([requests, bytes, sectors, idealSectors]: readonly [number, number, number, number]) => ({
  requests,
  bytes,
  sectors,
  idealSectors,
})

t.test('requests', { skip: noHostCompiler }, async t => {
  const { folder, programs } = buildOnHost(['defects.cc'], ['requests'], [], [], true)
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = path.join(folder, 'count.jsonl')
  for (const [kernel] of kernels) {
    t.match(runOnHost(programs[0]!, [kernel, '1', '32'], { MEMORY_COUNT: file }), { stdout: '', status: 0 })
  }
  t.match(runOnHost(programs[0]!, ['contiguous', '2', '32'], { MEMORY_COUNT: file }), { status: 0 })
  const lines = readFileSync(file, 'utf8').trim().split('\n')
  const expected = kernels.map(([kernel, loads, stores]) => ({
    kernel,
    launches: 1,
    loads: totals(loads),
    stores: totals(stores),
  }))
  const twoBlocks = {
    kernel: 'contiguous',
    launches: 1,
    loads: totals([2, 256, 8, 8]),
    stores: totals([2, 256, 8, 8]),
  }
  t.strictSame(
    lines.map(line => JSON.parse(line)),
    [...expected, twoBlocks],
  )
})
