// memory.js: sectors of global memory and wavefronts of shared memory that kernels take, which run on the host for it.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { buildOnHost, plainCpu, runOnHost } from '../../test/fixtures/cuda-on-host/cuda-on-host.js'
import { alignedColumns } from './table.js'

/** @typedef {{ requests: number, bytes: number, ideal: number }} Accesses loads or stores of warps */

/**
 * @typedef {object} MemoryFigures
 * @property {string} kernel
 * @property {number} launches
 * @property {Accesses & { sectors: number }} loads of global memory
 * @property {Accesses & { sectors: number }} stores
 * @property {Accesses & { wavefronts: number }} sharedLoads
 * @property {Accesses & { wavefronts: number }} sharedStores
 */

/** What memory_cases.cc launches: sources of native/kernels and of native/backend/cuda. */
const families = [
  ...['linear', 'linear_mma', 'linear_batch_mma', 'linear_few_mma', 'linear_blocks', 'linear_blocks_mma'],
  ...[
    'linear_blocks_batch_mma',
    'linear_blocks_few_mma',
    'linear_integer_mma',
    'linear_integer_few_mma',
    'expert_linear',
    'gather_rows',
    'matmul_mma',
    'product_epilogue',
    'pack',
  ],
  ...[
    'dora',
    'dora_norm',
    'attention',
    'attention_mma',
    'attention_backward_mma',
    'paged_attention',
    'paged_merge',
    'paged_attention_mma',
    'conv',
    'conv_mma',
    'conv_pack',
    'conv_channels_last',
    'conv_winograd',
    'conv_integer',
  ],
  ...[
    'normalization',
    'softmax_cross_entropy',
    'elementwise',
    'move',
    'reduction',
    'adamw',
    'cast',
    'bytes',
    'pool',
  ],
]
const launchers = [
  ...['linear', 'linear_integer', 'expert_linear', 'matmul'].map(name => `gemm/${name}`),
  ...['product', 'product_mma', 'fp4_product', 'fp4_test', 'fp4_ways'].map(name => `gemm/${name}`),
  ...['dora', 'dora_weight'].map(name => `dora/${name}`),
  ...['attention/attention', 'attention/paged_attention', 'conv/conv', 'conv/conv_pass', 'conv/conv_integer'],
  ...['amax', 'bytes', 'cast', 'nvfp4_rows', 'swizzle'].map(name => `quantize/${name}`),
  ...['normalization', 'softmax_cross_entropy', 'strided', 'adamw', 'pool'].map(name => `ops/${name}`),
]

/** Figures of the kernels that a program launches, in the order of their names. @param {string} program @param {readonly string[]} args @returns {MemoryFigures[]} */
export function memoryFigures(program, args = []) {
  const file = `${program}.jsonl`
  const { stdout, status } = runOnHost(program, args, { MEMORY_COUNT: file })
  if (status !== 0) throw new Error(`${path.basename(program)} ended with ${status}: ${stdout}`)
  const lines = readFileSync(file, 'utf8').trim().split('\n')
  rmSync(file)
  return lines.map(line => JSON.parse(line))
}

/** Figures of the cases of memory_cases.cc. Compiles for minutes. */
export function caseFigures() {
  const cpuFolder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-cpu-'))
  const sources = launchers.map(name => `backend/cuda/${name}.cc`)
  const archives = [plainCpu(cpuFolder)]
  const { folder, programs } = buildOnHost(['memory_cases.cc'], families, sources, archives, true)
  try {
    return memoryFigures(`${programs[0]}`)
  } finally {
    for (const built of [folder, cpuFolder]) rmSync(built, { recursive: true })
  }
}

/** @param {number} count @param {Accesses} accesses */
const overIdeal = (count, { ideal }) => (ideal === 0 ? '-' : (count / ideal).toFixed(2))

/** A line a kernel. @param {readonly MemoryFigures[]} figures */
export function memoryTable(figures) {
  const head = [
    ...['kernel', 'loads', 'sectors', 'ratio', 'stores', 'sectors', 'ratio'],
    ...['shared loads', 'ways', 'shared stores', 'ways'],
  ]
  const lines = figures.map(({ kernel, loads, stores, sharedLoads, sharedStores }) => [
    kernel,
    ...[loads, stores].flatMap(accesses => [
      `${accesses.requests}`,
      `${accesses.sectors}`,
      overIdeal(accesses.sectors, accesses),
    ]),
    ...[sharedLoads, sharedStores].flatMap(accesses => [
      `${accesses.requests}`,
      overIdeal(accesses.wavefronts, accesses),
    ]),
  ])
  return alignedColumns([head, ...lines])
}
