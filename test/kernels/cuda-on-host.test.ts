// The CUDA operations with their launchers, run on the host, agree with the CPU kernels.
import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import t from 'tap'
import { buildOnHost, noHostCompiler } from '../fixtures/cuda-on-host/cuda-on-host.js'

t.test('kernels and launchers', { skip: noHostCompiler }, async t => {
  const families = ['linear', 'dora', 'merge_backward', 'softmax_cross_entropy', 'adamw']
  const both = ['linear', 'product', 'softmax_cross_entropy', 'adamw']
  const sources = [
    ...['cpu', 'cuda'].flatMap(backend => both.map(name => `backend/${backend}/${name}.cc`)),
    ...['gemm_plain', 'lane_gemm_plain', 'precision_loops_plain', 'activation_loops_plain'].map(
      name => `backend/cpu/${name}.cc`,
    ),
    ...['lane_product', 'product_bf16', 'linear_integer', 'matmul', 'weight'].map(
      name => `backend/cpu/${name}.cc`,
    ),
    ...['dora_norm', 'dora_forward', 'dora_backward', 'dora_merge'].map(name => `backend/cpu/${name}.cc`),
    '../test/fixtures/cuda-on-host/plain-cpu.cc',
    'backend/cuda/dora.cc',
    'backend/cuda/merge_backward.cc',
    'core/thread_pool.cc',
  ]
  const { folder, program } = buildOnHost('dora.cc', families, sources)
  t.teardown(() => rmSync(folder, { recursive: true }))
  const { stdout, status } = spawnSync(program, { encoding: 'utf8' })
  t.match(stdout, /^\d{4} results agree\n$/)
  t.equal(status, 0)
})

t.test('convolutions, attention and normalizations', { skip: noHostCompiler }, async t => {
  const both = ['conv', 'attention']
  const convolutions = ['conv_backward', 'conv_passes', 'conv_reading', 'conv_stage', 'product', 'weight']
  const loops = ['row_loops', 'gemm', 'lane_gemm', 'precision_loops', 'activation_loops']
  const others = ['attention_backward', 'attention_tiles', 'softmax', 'norm', 'batch_norm']
  const sources = [
    ...['cpu', 'cuda'].flatMap(backend => both.map(name => `backend/${backend}/${name}.cc`)),
    ...[...convolutions, ...others, ...loops.map(name => `${name}_plain`)].map(
      name => `backend/cpu/${name}.cc`,
    ),
    '../test/fixtures/cuda-on-host/plain-cpu.cc',
    'backend/cuda/normalization.cc',
    'core/thread_pool.cc',
  ]
  const { folder, program } = buildOnHost('networks.cc', ['conv', 'normalization', 'attention'], sources)
  t.teardown(() => rmSync(folder, { recursive: true }))
  const { stdout, status } = spawnSync(program, { encoding: 'utf8' })
  t.match(stdout, /^\d{3} results agree\n$/)
  t.equal(status, 0)
})

t.test('views, reductions, pools and casts', { skip: noHostCompiler }, async t => {
  const operations = ['unary', 'binary', 'select', 'reduce', 'cumulate', 'copy_strided', 'indexed', 'pool']
  const sources = [
    ...[...operations, 'resample', 'cast', 'elements'].map(name => `backend/cpu/${name}.cc`),
    ...['view', 'pool', 'cast'].map(name => `backend/cuda/${name}.cc`),
    ...['precision_loops_plain', 'activation_loops_plain', 'gemm_plain', 'lane_gemm_plain'].map(
      name => `backend/cpu/${name}.cc`,
    ),
    '../test/fixtures/cuda-on-host/plain-cpu.cc',
    'core/thread_pool.cc',
  ]
  const { folder, program } = buildOnHost(
    'views.cc',
    ['elementwise', 'move', 'reduction', 'pool', 'cast'],
    sources,
  )
  t.teardown(() => rmSync(folder, { recursive: true }))
  const { stdout, status } = spawnSync(program, { encoding: 'utf8' })
  t.match(stdout, /^\d{4} results agree\n$/)
  t.equal(status, 0)
})
