// The CUDA operations with their launchers, run on the host, agree with the CPU kernels.
import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import t from 'tap'
import { buildOnHost, noHostCompiler } from '../fixtures/cuda-on-host/cuda-on-host.js'

t.test('kernels and launchers', { skip: noHostCompiler }, async t => {
  const families = ['linear', 'dora', 'dora_mixed', 'softmax_cross_entropy', 'adamw']
  const both = ['linear', 'product', 'softmax_cross_entropy', 'adamw']
  const sources = [
    ...['cpu', 'cuda'].flatMap(backend => both.map(name => `backend/${backend}/${name}.cc`)),
    ...['gemm_plain', 'weight', 'dora_norm', 'dora_forward', 'dora_mixed', 'dora_backward', 'dora_merge'].map(
      name => `backend/cpu/${name}.cc`,
    ),
    'backend/cpu/epilogue.cc',
    'backend/cuda/dora.cc',
    'backend/cuda/dora_mixed.cc',
    'core/thread_pool.cc',
  ]
  const { folder, program } = buildOnHost('dora.cc', families, sources)
  t.teardown(() => rmSync(folder, { recursive: true }))
  const { stdout, status } = spawnSync(program, { encoding: 'utf8' })
  t.match(stdout, /^\d{4} results agree\n$/)
  t.equal(status, 0)
})
