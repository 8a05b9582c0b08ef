// The CUDA operations with their launchers, run on the host, agree with the CPU kernels.
import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import t from 'tap'
import { buildOnHost, noHostCompiler } from '../fixtures/cuda-on-host/cuda-on-host.js'

/** Sources of the CPU kernels that are the reference, and of the launchers. */
const sources = [
  ...['cpu', 'cuda'].flatMap(backend =>
    ['linear', 'product', 'softmax_cross_entropy', 'adamw'].map(name => `backend/${backend}/${name}.cc`),
  ),
  ...[
    'epilogue',
    'finish',
    'scratch',
    'byte_loops_plain',
    'function_loops_plain',
    'gemm_plain',
    'lane_gemm_plain',
    'lane_product',
    'precision_loops_plain',
    'recurrent_loops_plain',
    'product_bf16',
    'linear_integer',
    'matmul',
    'nvfp4',
    'amax',
    'swizzle',
    'weight',
    'dora_norm',
    'dora_forward',
    'dora_mixed',
    'dora_backward',
    'dora_merge',
  ].map(name => `backend/cpu/${name}.cc`),
  '../test/fixtures/cuda-on-host/plain-cpu.cc',
  'backend/cuda/dora.cc',
  'backend/cuda/dora_mixed.cc',
  'backend/cuda/dora_weight.cc',
  'backend/cuda/merge_backward.cc',
  ...['amax', 'swizzle', 'fp4_product', 'fp4_test'].map(name => `backend/cuda/${name}.cc`),
  'backend/cuda/tensor.cc',
  'core/thread_pool.cc',
]
const families = [
  ...['linear', 'linear_integer', 'dora', 'dora_mixed', 'dora_norm', 'merge_backward'],
  ...['softmax_cross_entropy', 'adamw'],
  ...['pack', 'tensor', 'tensor_few', 'tensor_finish'],
  ...['amax', 'swizzle', 'nvfp4_activation', 'tensor_fp4'],
]

t.test('kernels and launchers', { skip: noHostCompiler }, async t => {
  const { folder, programs } = buildOnHost(
    ['dora.cc', 'products.cc', 'tensor.cc', 'fp4.cc'],
    families,
    sources,
  )
  t.teardown(() => rmSync(folder, { recursive: true }))
  for (const program of programs) {
    const { stdout, status } = spawnSync(program, { encoding: 'utf8' })
    t.match(stdout, /^\d+ results agree\n$/, program)
    t.equal(status, 0, program)
  }
})

t.test('convolutions, attention and normalizations', { skip: noHostCompiler }, async t => {
  const both = ['conv', 'attention']
  const convolutions = [
    'conv_backward',
    'conv_passes',
    'conv_reading',
    'conv_stage',
    'winograd',
    'product',
    'weight',
  ]
  const numbers = ['precision_loops', 'function_loops', 'byte_loops', 'recurrent_loops']
  const loops = ['row_loops', 'gemm', 'lane_gemm', ...numbers]
  const others = [
    'epilogue',
    'finish',
    'scratch',
    'attention_backward',
    'attention_tiles',
    'softmax',
    'norm',
    'batch_norm',
  ]
  const sources = [
    ...['cpu', 'cuda'].flatMap(backend => both.map(name => `backend/${backend}/${name}.cc`)),
    ...[...convolutions, ...others, ...loops.map(name => `${name}_plain`)].map(
      name => `backend/cpu/${name}.cc`,
    ),
    '../test/fixtures/cuda-on-host/plain-cpu.cc',
    'backend/cuda/normalization.cc',
    'core/thread_pool.cc',
  ]
  const { folder, programs } = buildOnHost(['networks.cc'], ['conv', 'normalization', 'attention'], sources)
  t.teardown(() => rmSync(folder, { recursive: true }))
  const { stdout, status } = spawnSync(programs[0]!, { encoding: 'utf8' })
  t.match(stdout, /^\d{3} results agree\n$/)
  t.equal(status, 0)
})

t.test('views, reductions, pools, casts, orders and recurrent layers', { skip: noHostCompiler }, async t => {
  const views = ['unary', 'binary', 'select', 'reduce', 'cumulate', 'copy_strided', 'indexed', 'pool']
  const layers = ['top_k', 'grid_sample', 'recurrent', 'adamw']
  const sources = [
    ...[...views, ...layers, 'resample', 'dropout', 'cast', 'elements'].map(name => `backend/cpu/${name}.cc`),
    ...['view', 'pool', 'dropout', 'cast', 'scatter', 'grid_sample', 'recurrent', 'adamw'].map(
      name => `backend/cuda/${name}.cc`,
    ),
    ...[
      'conv_reading',
      'conv_stage',
      'weight',
      'product',
      'finish',
      'epilogue',
      'scratch',
      'pool_bytes',
      'byte_stage',
    ].map(name => `backend/cpu/${name}.cc`),
    ...['precision_loops', 'function_loops', 'recurrent_loops', 'byte_loops', 'gemm', 'lane_gemm'].map(
      name => `backend/cpu/${name}_plain.cc`,
    ),
    '../test/fixtures/cuda-on-host/plain-cpu.cc',
    'core/thread_pool.cc',
  ]
  const { folder, programs } = buildOnHost(
    ['views.cc', 'layers.cc'],
    ['elementwise', 'move', 'reduction', 'pool', 'dropout', 'cast', 'scatter', ...layers],
    sources,
  )
  t.teardown(() => rmSync(folder, { recursive: true }))
  for (const program of programs) {
    const { stdout, status } = spawnSync(program, { encoding: 'utf8' })
    t.match(stdout, /^\d{3,4} results agree\n$/, program)
    t.equal(status, 0, program)
  }
})
