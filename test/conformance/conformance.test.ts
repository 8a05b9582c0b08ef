// The shared ONNX cases on both engines: those that fail are the ones that docs/operators.md names.
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../..')
const cases = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'onnx-node.tar.gz')
const missing = existsSync(cases) ? false : 'set DGX_SPARK_TEST_DATA to the folder of the shared data'

t.test('the cases that fail are the documented ones', { skip: missing }, async t => {
  const page = readFileSync(path.join(root, 'docs/operators.md'), 'utf8')
  const documented = [...page.matchAll(/`(test_\w+)`/g)].map(match => match[1]).sort()
  for (const backend of ['cpu', 'js']) {
    const run = promisify(execFile)(process.execPath, [
      path.join(root, 'test/fixtures/conformance/main.js'),
      cases,
      ...['--backend', backend],
    ])
    const { stdout } = await run.catch(failure => failure)
    const failed = [...stdout.matchAll(/^(test_\w+): /gm)].map(match => match[1]).sort()
    t.same(failed, documented, backend)
    t.match(stdout, /^\d+ passed, \d+ failed, 0 skipped$/m)
  }
})
