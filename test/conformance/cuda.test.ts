// The shared ONNX cases on the fake driver, whose kernels do nothing: results are wrong, but there is a kernel for all
// that the cases call, and no launch is refused.
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

const root = path.resolve(import.meta.dirname, '../..')
const cases = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'onnx-node.tar.gz')
const missing = existsSync(cases) ? false : 'set DGX_SPARK_TEST_DATA to the folder of the shared data'

/** Cases that get no further than a shape that depends on what kernels compute, and those that fail everywhere. */
const stuck = [
  'affine_grid_2d_expanded',
  'affine_grid_3d_expanded',
  'range_bfloat16_type_positive_delta_expanded',
  'range_float16_type_positive_delta_expanded',
  'range_int32_type_negative_delta_expanded',
  'training_dropout',
  'training_dropout_mask',
].map(name => `test_${name}`)

t.test('the cases launch', { skip: missing || noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver(['cuda'])
  t.teardown(() => fakeDriver.dispose())
  const { env, lines } = machine(fakeDriver, discrete)
  const run = promisify(execFile)(
    process.execPath,
    [path.join(root, 'test/fixtures/conformance/main.js'), cases, '--backend', 'cuda'],
    { env: { ...process.env, NODE_OPTIONS: '', ...env }, maxBuffer: 64 << 20 },
  )
  const { stdout } = (await run.catch(failure => failure)) as { stdout: string }
  const [, passed, failed] = /^(\d+) passed, (\d+) failed/m.exec(stdout) ?? []
  t.ok(Number(passed) + Number(failed) > 1000, `${passed} passed, ${failed} failed`)
  const wrongResult = /^test_\w+: \S+ (is .*, not |has the shape \[.*\], not )/
  const others = stdout.split('\n').filter(line => line.startsWith('test_') && !wrongResult.test(line))
  t.same(others.map(line => line.slice(0, line.indexOf(':'))).sort(), stuck.sort(), others.join('\n'))
  t.ok(lines('launch').length > 4000, `${lines('launch').length} launches`)
})
