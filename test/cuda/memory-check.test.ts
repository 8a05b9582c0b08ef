// Races, reads of undefined memory and conflicts of banks in kernels that run on the host are found, and only they.
import { rmSync } from 'node:fs'
import t from 'tap'
import { buildOnHost, noHostCompiler, runOnHost } from '../fixtures/cuda-on-host/cuda-on-host.js'

const defects = [
  [
    'not_ordered',
    1,
    64,
    /^not_ordered: uninitialised, byte \d+ of shared memory: thread 0 of block 0 reads at defects.cu:14$/m,
  ],
  [
    'not_ordered',
    1,
    64,
    /^not_ordered: race, .*: thread 0 .* reads at defects.cu:14, thread 1 of block 0 writes at defects.cu:12$/m,
  ],
  [
    'ordered_by_shuffle',
    1,
    64,
    /^ordered_by_shuffle: race, .*: thread 1 .* writes .*, thread 0 of block 0 reads /m,
  ],
  ['ordered_by_warp', 1, 64, /^$/],
  ['ordered_by_block', 1, 64, /^$/],
  [
    'overwritten_early',
    1,
    64,
    /^overwritten_early: race, .*: thread 0 .* reads .*, thread 32 of block 0 writes /m,
  ],
  ['shared_of_another_block', 1, 1, /^$/],
  [
    'shared_of_another_block',
    2,
    1,
    /^shared_of_another_block: uninitialised, .* thread 0 of block 1 reads /m,
  ],
  ['shared_of_each_block', 2, 1, /^$/],
  ['stores_what_is_returned', 1, 32, /^$/],
  ['adds_to_an_output', 1, 64, /^adds_to_an_output: uninitialised, byte 0 of global memory: /m],
  [
    'blocks_share_an_element',
    2,
    1,
    /^blocks_share_an_element: race, .* of block 0 writes .*, thread 0 of block 1 writes /m,
  ],
  ['reads_a_copy_early', 1, 1, /^reads_a_copy_early: copy not awaited, /m],
  ['awaits_a_copy', 1, 1, /^$/],
  [
    'shares_a_copy_early',
    1,
    2,
    /^shares_a_copy_early: race, .*: thread 0 of block 0 writes at defects.cu:\d+, thread 1 .* reads at defects.cu:\d+$/m,
  ],
  ['rows_in_all_banks', 1, 32, /^$/],
  ['rows_in_one_bank', 1, 32, /^ldmatrix: rows of a matrix lie in the same banks$/m],
] as const

t.test('seeded defects', { skip: noHostCompiler }, async t => {
  const { folder, programs } = buildOnHost(['defects.cc'], ['defects'], [], [], true)
  t.teardown(() => rmSync(folder, { recursive: true }))
  for (const [kernel, blocks, threads, report] of defects) {
    const { stdout, status } = runOnHost(programs[0]!, [kernel, `${blocks}`, `${threads}`])
    t.match(stdout, report, kernel)
    t.equal(status, 0, kernel)
  }
})
