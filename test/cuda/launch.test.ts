// Launches are checked against the machine code of the kernels: by the launch path (number and sizes of arguments) and
// by the fake driver (everything a driver or a GPU would refuse). Every seeded fault is found and named.
import { existsSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { buildCudaProgram, outcomes } from '../fixtures/cuda-program.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

const folder = process.env.DGX_SPARK_FATBINS ?? path.resolve(import.meta.dirname, '../../build/cmake')
const noKernels =
  noCudaCalls || (!existsSync(path.join(folder, 'linear.fatbin')) && `there are no kernels in ${folder}`)

const right = { right: 'ok', null: 'ok', 'right structure': 'ok', 'shared memory': 'ok' }
const invalid = 'failed on device 0: CUDA_ERROR_INVALID_VALUE 1 \\(invalid argument'
const refused = (kernel: string, why: string) =>
  new RegExp(`^ERR_CUDA launching kernel ${kernel} ${invalid}: ${why}\\)`)

t.test('wrong launches', { skip: noKernels }, t => {
  const fakeDriver = new FakeDriver(['cuda'])
  t.teardown(() => fakeDriver.dispose())
  const { env, lines } = machine(fakeDriver, { ...discrete, pointer: { alignment: 4 } })
  const program = buildCudaProgram(fakeDriver, 'cuda-launch')
  const seen = outcomes(program, [folder], env)
  const [unchecked] = lines('unchecked')
  if (unchecked) {
    t.pass('kernels that can be read', { skip: unchecked })
    return t.end()
  }
  t.match(seen, {
    ...right,
    'int for a pointer': 'ERR_INTERNAL argument 2 of kernel adamw_f32 has 4 bytes and its parameter 8',
    'number for structure':
      /^ERR_INTERNAL argument 0 of kernel linear_f32 has 4 bytes and its parameter \d{2,}/,
    missing: 'ERR_INTERNAL kernel adamw_f32 is given 2 arguments and takes 3',
    'one too many': 'ERR_INTERNAL kernel adamw_f32 is given 4 arguments and takes 3',
    'unknown kernel': /^ERR_CUDA finding the kernel adamw\/adamw_f16 failed .* CUDA_ERROR_NOT_FOUND/,
    'host pointer': refused(
      'adamw_f32',
      'argument 2: address 0x\\w+ at byte 0 is in no allocation of the device',
    ),
    freed: refused('adamw_f32', 'argument 2: address 0x\\w+ at byte 0 was freed'),
    'past the end': refused(
      'adamw_f32',
      'argument 2: address 0x\\w+ at byte 0 is in no allocation of the device',
    ),
    misaligned: refused('adamw_f32', 'argument 2: address 0x\\w+2 at byte 0 is misaligned'),
    'host pointer inside': refused(
      'linear_f32',
      'argument 0: address 0x\\w+ at byte \\d+ is in no allocation .*',
    ),
    'misaligned inside': refused('linear_f32', 'argument 0: address 0x\\w+2 at byte \\d+ is misaligned'),
    'too many threads': refused('linear_f32', '257 threads; the kernel is compiled for 256'),
    'too much shared memory':
      /^ERR_CUDA asking for 101376 bytes of shared memory for linear_f32 failed .*101376 bytes of dynamic shared memory beside \d+ static ones/,
  })
  t.equal(Object.keys(seen).length, 17)

  const older = new FakeDriver(['cuda'], ['NO_cuFuncGetParamInfo'])
  t.teardown(() => older.dispose())
  const untold = outcomes(program, [folder], machine(older, discrete).env)
  t.match(untold, { ...right, 'one too many': 'ok' }, 'before CUDA 12.4 a driver does not tell sizes')
  t.end()
})
