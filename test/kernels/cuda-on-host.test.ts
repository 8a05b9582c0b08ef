// The CUDA operations with their launchers, run on the host, agree with the CPU kernels; every kernel is launched.
import { rmSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import {
  buildOnHost,
  kernelFamilies,
  noHostCompiler,
  notLaunched,
  plainCpu,
  runOnHost,
} from '../fixtures/cuda-on-host/cuda-on-host.js'

const work = t.testdir()
const reference = noHostCompiler ? [] : [plainCpu(work)]

/** Names of the kernels that were launched. */
const log = path.join(work, 'launched')

/** Kernel families that test/precision/cuda-on-host.test.ts checks. */
const checkedElsewhere = ['cast', 'amax', 'nvfp4', 'fp8', 'swizzle']

/** Kernels of the families that are checked here. */
const checked = new Map<string, readonly string[]>()

/** Runs programs of kernel families and launchers, beside the CPU backend. */
function check(
  name: string,
  mains: readonly string[],
  families: readonly string[],
  launchers: readonly string[],
): void {
  t.test(name, { skip: noHostCompiler }, async t => {
    const sources = launchers.map(launcher => `backend/cuda/${launcher}.cc`)
    const { folder, programs, kernels } = buildOnHost(mains, families, sources, reference)
    t.teardown(() => rmSync(folder, { recursive: true }))
    for (const [family, names] of kernels) checked.set(family, names)
    for (const program of programs) {
      const { stdout, status } = runOnHost(program, [], { LAUNCHED_KERNELS: log })
      t.match(stdout, /^\d+ results agree\n$/, program)
      t.equal(status, 0, program)
    }
  })
}

check(
  'products, DoRA and optimizers',
  ['dora.cc', 'products.cc', 'product_mma.cc', 'linear_integer_mma.cc', 'fp4.cc'],
  [
    'linear',
    'expert_linear',
    'linear_integer_mma',
    'linear_integer_few_mma',
    'linear_blocks',
    'gather_rows',
    'dora',
    'dora_mixed',
    'dora_norm',
    'merge_backward',
    'softmax_cross_entropy',
    'adamw',
    'pack',
    'linear_mma',
    'linear_batch_mma',
    'linear_few_mma',
    'linear_blocks_mma',
    'linear_blocks_batch_mma',
    'linear_blocks_few_mma',
    'product_epilogue',
    'matmul_mma',
    'amax',
    'swizzle',
    'nvfp4_activation',
    'linear_fp4_mma',
    'normalization',
  ],
  [
    'gemm/linear',
    'gemm/linear_integer',
    'gemm/expert_linear',
    'gemm/matmul',
    'gemm/product',
    'gemm/product_mma',
    'gemm/fp4_product',
    'gemm/fp4_test',
    'gemm/fp4_ways',
    'dora/dora',
    'dora/dora_mixed',
    'dora/dora_weight',
    'dora/merge_backward',
    'ops/softmax_cross_entropy',
    'ops/adamw',
    'ops/normalization',
    'quantize/amax',
    'quantize/nvfp4_rows',
    'quantize/swizzle',
  ],
)

check(
  'convolutions, attention and normalizations',
  [
    'networks.cc',
    'conv_mma.cc',
    'conv_channels_last.cc',
    'conv_winograd.cc',
    'conv_integer.cc',
    'attention_mma.cc',
    'attention_backward_mma.cc',
    'paged.cc',
    'paged_mma.cc',
  ],
  [
    'conv',
    'linear',
    'normalization',
    'rotary',
    'attention',
    'conv_pack',
    'conv_mma',
    'conv_channels_last',
    'conv_winograd',
    'conv_integer',
    'attention_mma',
    'attention_backward_mma',
    'paged_attention',
    'paged_merge',
    'paged_attention_mma',
    'nvfp4_activation',
    'cast',
  ],
  [
    'conv/conv',
    'conv/conv_pass',
    'conv/conv_integer',
    'attention/attention',
    'attention/paged_attention',
    'ops/normalization',
    'ops/rotary',
    'ops/strided',
    'quantize/cast',
    'quantize/nvfp4_rows',
    'gemm/fp4_ways',
  ],
)

const ops = ['pool', 'dropout', 'scatter', 'grid_sample', 'recurrent', 'adamw', 'warp_frames']
check(
  'strided operands, reductions, pools, casts, bytes, orders, recurrent layers and frames',
  ['strided.cc', 'layers.cc', 'bytes.cc'],
  ['elementwise', 'move', 'reduction', 'top_k', 'cast', 'bytes', ...ops],
  ['quantize/cast', 'quantize/bytes', ...['strided', ...ops].map(name => `ops/${name}`)],
)

t.test('families', { skip: noHostCompiler }, async t => {
  const unchecked = kernelFamilies.filter(
    family => !checked.has(family) && !checkedElsewhere.includes(family),
  )
  t.strictSame(unchecked, [], 'kernel families without a test')
  for (const family of checkedElsewhere) checked.delete(family)
  t.strictSame(notLaunched([...checked.values()].flat(), log), [], 'kernels that are not launched')
})
