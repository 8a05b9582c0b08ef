// Sectors of global memory and wavefronts of shared memory that warps of kernels on the host take, and their table.
import { rmSync } from 'node:fs'
import t from 'tap'
import { type MemoryFigures, memoryFigures, memoryTable } from '../../bench/gpu-static/memory.js'
import { buildOnHost, noHostCompiler } from '../fixtures/cuda-on-host/cuda-on-host.js'

/** Requests, bytes, sectors or wavefronts, and the fewest of them. */
type Accesses = readonly [number, number, number, number]

const none: Accesses = [0, 0, 0, 0]
const whole: Accesses = [1, 128, 4, 4]

/** Kernels that 32 threads run, with the loads and stores of global and of shared memory. */
const kernels: readonly (readonly [string, Accesses, Accesses, Accesses, Accesses])[] = [
  ['contiguous', whole, whole, none, none],
  ['every_other', [1, 128, 8, 4], whole, none, none],
  ['rows_apart', [1, 128, 32, 4], whole, none, none],
  ['misaligned', [1, 128, 5, 4], whole, none, none],
  ['one_for_all', [1, 4, 1, 1], whole, none, none],
  ['diverges', [2, 192, 6, 6], whole, none, none],
  ['copies', [1, 256, 8, 8], whole, [1, 128, 4, 1], [1, 512, 4, 4]],
  ['banks_apart', whole, whole, [1, 128, 1, 1], [1, 128, 1, 1]],
  ['every_other_bank', whole, whole, [1, 128, 2, 1], [1, 128, 2, 1]],
  ['one_bank', whole, whole, [1, 128, 32, 1], [1, 128, 32, 1]],
]

const sectors = ([requests, bytes, sectors, ideal]: Accesses) => ({ requests, bytes, sectors, ideal })
const wavefronts = ([requests, bytes, wavefronts, ideal]: Accesses) => ({
  requests,
  bytes,
  wavefronts,
  ideal,
})

const figures: readonly MemoryFigures[] = kernels.map(
  ([kernel, loads, stores, sharedLoads, sharedStores]) => ({
    kernel,
    launches: 1,
    loads: sectors(loads),
    stores: sectors(stores),
    sharedLoads: wavefronts(sharedLoads),
    sharedStores: wavefronts(sharedStores),
  }),
)

t.test('requests', { skip: noHostCompiler }, async t => {
  const { folder, programs } = buildOnHost(['defects.cc'], ['requests'], [], [], true)
  t.teardown(() => rmSync(folder, { recursive: true }))
  const run = (kernel: string, blocks: number) => memoryFigures(programs[0]!, [kernel, `${blocks}`, '32'])
  t.strictSame(
    kernels.flatMap(([kernel]) => run(kernel, 1)),
    figures,
  )
  t.match(run('contiguous', 2), [{ launches: 1, loads: sectors([2, 256, 8, 8]) }])
})

t.test('table', async t => {
  t.equal(
    memoryTable(figures.filter(({ kernel }) => ['rows_apart', 'one_bank'].includes(kernel))),
    [
      'kernel      loads  sectors  ratio  stores  sectors  ratio  shared loads   ways  shared stores   ways',
      'rows_apart      1       32   8.00       1        4   1.00             0      -              0      -',
      'one_bank        1        4   1.00       1        4   1.00             1  32.00              1  32.00',
    ].join('\n'),
  )
})
