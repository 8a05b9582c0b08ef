// The CUDA operations with their launchers, run on the host, agree with the CPU kernels.
import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import t from 'tap'
import { buildOnHost, noHostCompiler, plainCpu } from '../fixtures/cuda-on-host/cuda-on-host.js'

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
      const { stdout, status } = spawnSync(program, { encoding: 'utf8' })
      t.match(stdout, /^\d+ results agree\n$/, program)
      t.equal(status, 0, program)
    }
  })
}

check(
  'products, DoRA and optimizers',
  ['dora.cc', 'products.cc', 'tensor.cc', 'fp4.cc'],
  [
    ...['linear', 'linear_integer', 'dora', 'dora_mixed', 'dora_norm', 'merge_backward'],
    ...['softmax_cross_entropy', 'adamw'],
    ...['pack', 'tensor', 'tensor_few', 'tensor_finish', 'matmul_tensor'],
    ...['amax', 'swizzle', 'nvfp4_activation', 'tensor_fp4'],
  ],
  [
    ...['linear', 'matmul', 'product', 'softmax_cross_entropy', 'adamw', 'tensor'],
    ...['dora', 'dora_mixed', 'dora_weight'],
    ...['merge_backward', 'amax', 'swizzle', 'fp4_product', 'fp4_test'],
  ],
)

const networks = ['conv', 'normalization', 'attention']
check(
  'convolutions, attention and normalizations',
  ['networks.cc', 'conv_tensor.cc', 'attention_tensor.cc'],
  [...networks, 'conv_pack', 'conv_tensor', 'attention_tensor'],
  networks,
)

const views = ['pool', 'dropout', 'cast', 'scatter', 'grid_sample', 'recurrent', 'adamw']
check(
  'views, reductions, pools, casts, orders and recurrent layers',
  ['views.cc', 'layers.cc'],
  ['elementwise', 'move', 'reduction', 'top_k', ...views],
  ['view', ...views],
)
