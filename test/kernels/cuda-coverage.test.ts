// What the GPU suite launches, on the stand-in driver, which checks every launch against the machine code of its
// kernel: no launch is refused, and no kernel of any family is left out.
import { spawnSync } from 'node:child_process'
import t from 'tap'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'
import { noCudaCalls, StandIn } from '../fixtures/stand-in/stand-in.js'

const nameIn = (line: string) => line.split(' ')[1]!

t.test('every kernel is launched, and every launch is right', { skip: noCudaCalls }, t => {
  const standIn = new StandIn()
  t.teardown(() => standIn.dispose())
  const { env, lines } = machine(standIn, discrete)
  const { stdout } = spawnSync(process.execPath, ['test/gpu/kernels.test.js'], {
    encoding: 'utf8',
    env: { ...process.env, ...env, DGX_SPARK_GPU_SIZES: 'small' },
    timeout: 240_000,
    maxBuffer: 64 << 20,
  })
  const [unchecked] = lines('unchecked')
  if (unchecked) {
    t.pass('kernels that can be read', { skip: unchecked })
    return t.end()
  }
  const refused = stdout.split('\n').filter(line => /ERR_|CUDA_ERROR|argument \d+ of kernel/.test(line))
  t.strictSame(refused, [], 'refused launches')
  const kernels = new Set(lines('kernel ').map(nameIn))
  const launched = new Set(lines('launch ').map(nameIn))
  t.ok(kernels.size > 50, `${kernels.size} kernels`)
  t.strictSame([...kernels].filter(kernel => !launched.has(kernel)).sort(), [], 'kernels nobody launches')
  t.end()
})
