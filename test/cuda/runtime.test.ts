// The CUDA runtime below Node-API: limits of a launch, kernel families, scratch memory. Compiled and run here.
import t from 'tap'
import { buildCudaProgram, outcomes } from '../fixtures/cuda-program.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

t.test('the CUDA runtime', { skip: noCompiler }, async t => {
  const fakeDriver = new FakeDriver(['cuda'])
  t.teardown(() => fakeDriver.dispose())
  const { env, lines } = machine(fakeDriver, discrete)
  const seen = outcomes(buildCudaProgram(fakeDriver, 'cuda-runtime'), [], env)
  t.match(seen, {
    'no device current': /^ERR_INTERNAL no CUDA device is current/,
    'same device': 'ok',
    'largest grid': 'ok',
    'grid x':
      /^ERR_SHAPE .*kernel k: a grid of 2147483648 x 1 x 1 blocks; at most 2147483647 x 65535 x 65535/,
    'grid y': /^ERR_SHAPE .*1 x 65536 x 1/,
    'grid z': /^ERR_SHAPE .*1 x 1 x 65536/,
    'grid below 0': /^ERR_SHAPE .*-1 x 1 x 1/,
    'empty grid': 'ok',
    'largest block': 'ok',
    'deep block': 'ok',
    'too many threads': /^ERR_SHAPE .*a block of 33 x 32 x 1 threads; at most 1024/,
    'too deep': /^ERR_SHAPE .*64 in z/,
    'no threads': /^ERR_SHAPE .*0 x 1 x 1/,
    'all shared memory': 'ok',
    'too much shared memory': /^ERR_SHAPE .*101377 bytes of shared memory; the device has 101376/,
    'unknown family': /^ERR_UNSUPPORTED .*without the CUDA kernels 'none'/,
    'broken family': /^ERR_CUDA loading the kernels 'broken' failed on device 0: CUDA_ERROR_/,
    'scratch is used again': '1',
    'scratch is not shared': '1',
    'scratch that cannot fit':
      /^ERR_OUT_OF_MEMORY cannot allocate 1048576 MiB of device memory: 4096 MiB are free/,
    wait: 'ok',
    'completion without a thread': 'ok',
    'completion without a thread, here': '1',
    completion: 'ok',
    'completion, here': '0',
    'staging of a call that fails half-way': /^ERR_UNSUPPORTED/,
    'staging that was waited for': 'ok',
  })
  t.strictSame(lines('launch'), [
    'launch k grid 2147483647 65535 65535 block 32 1 1 shared 0',
    'launch k grid 1 1 1 block 1024 1 1 shared 0',
    'launch k grid 1 1 1 block 1 1 64 shared 0',
    'launch wide grid 3 2 1 block 64 1 1 shared 101376',
    'launch k grid 7 1 1 block 1 1 1 shared 0',
    'launch k grid 8 1 1 block 1 1 1 shared 0',
  ])
  const waits = lines('').filter(line => /^(launch k grid [78]|synchronize)/.test(line))
  const order = waits.map(line => line.replace(/ 1 1 block.*/, ''))
  t.strictSame(order.slice(order.indexOf('launch k grid 7')), [
    'launch k grid 7',
    'synchronize',
    'launch k grid 8',
    'synchronize',
  ])
})
