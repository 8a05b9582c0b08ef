// The CUDA operations with their launchers, run on the host, agree with the CPU kernels.
import { rmSync } from 'node:fs'
import t from 'tap'
import { buildOnHost, noHostCompiler, plainCpu, runOnHost } from '../fixtures/cuda-on-host/cuda-on-host.js'

const reference = noHostCompiler ? [] : [plainCpu(t.testdir())]

/** Runs programs of kernel families and launchers, beside the CPU backend. */
function check(
  name: string,
  mains: readonly string[],
  families: readonly string[],
  launchers: readonly string[],
): void {
  t.test(name, { skip: noHostCompiler }, async t => {
    const sources = launchers.map(launcher => `backend/cuda/${launcher}.cc`)
    const { folder, programs } = buildOnHost(mains, families, sources, reference)
    t.teardown(() => rmSync(folder, { recursive: true }))
    for (const program of programs) {
      const { stdout, status } = runOnHost(program)
      t.match(stdout, /^\d+ results agree\n$/, program)
      t.equal(status, 0, program)
    }
  })
}

check(
  'products, DoRA and optimizers',
  ['dora.cc', 'products.cc', 'product_mma.cc', 'fp4.cc'],
  [
    'linear',
    'expert_linear',
    'linear_integer',
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
    'linear_few_mma',
    'linear_blocks_mma',
    'linear_blocks_few_mma',
    'product_epilogue',
    'matmul_mma',
    'amax',
    'swizzle',
    'nvfp4_activation',
    'linear_fp4_mma',
  ],
  [
    'gemm/linear',
    'gemm/expert_linear',
    'gemm/matmul',
    'gemm/product',
    'gemm/product_mma',
    'gemm/fp4_product',
    'gemm/fp4_test',
    'dora/dora',
    'dora/dora_mixed',
    'dora/dora_weight',
    'dora/merge_backward',
    'ops/softmax_cross_entropy',
    'ops/adamw',
    'quantize/amax',
    'quantize/swizzle',
  ],
)

check(
  'convolutions, attention and normalizations',
  ['networks.cc', 'conv_mma.cc', 'attention_mma.cc', 'paged.cc'],
  ['conv', 'normalization', 'attention', 'conv_pack', 'conv_mma', 'attention_mma', 'paged_attention'],
  ['conv/conv', 'ops/normalization', 'attention/attention', 'attention/paged_attention'],
)

const ops = ['pool', 'dropout', 'scatter', 'grid_sample', 'recurrent', 'adamw', 'warp_frames']
check(
  'strided operands, reductions, pools, casts, orders, recurrent layers and frames',
  ['strided.cc', 'layers.cc'],
  ['elementwise', 'move', 'reduction', 'top_k', 'cast', ...ops],
  ['quantize/cast', ...['strided', ...ops].map(name => `ops/${name}`)],
)
