// The CUDA targets that CMake chooses: those of this machine for a checkout, all of them for prebuilds.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { has, run } from '../fixtures/checkout.js'

const root = path.resolve(import.meta.dirname, '../..')
const missing = ['cmake', 'nvcc'].filter(command => !has(command))
const skip = missing.length > 0 && `not installed: ${missing.join(', ')}`
const work = mkdtempSync(path.join(tmpdir(), 'dgx-spark-cuda-targets-'))
t.teardown(() => rmSync(work, { recursive: true, force: true }))
mkdirSync(path.join(work, 'bin'))

/** What CMake says that it builds on a machine whose nvidia-smi prints `capabilities`. */
function targets(capabilities: string, archs = ''): string | undefined {
  const smi = path.join(work, 'bin', 'nvidia-smi')
  writeFileSync(smi, `#!/bin/sh\nprintf '${capabilities}'\n`, { mode: 0o755 })
  const env = { PATH: `${path.dirname(smi)}:${process.env.PATH}`, DGX_SPARK_CUDA_ARCHS: archs }
  const folder = mkdtempSync(path.join(work, 'cmake-'))
  const printed = run(root, 'cmake', ['-S', root, '-B', folder, '-DDGX_SPARK_FATBINS='], env)
  return printed.match(/CUDA targets: (.*)/)?.[1]
}

t.test('a checkout is built for the GPUs of the machine', { skip }, t => {
  t.equal(targets('12.1\\n'), '121', 'DGX Spark')
  t.equal(targets('8.9\\n12.0\\n8.9\\n'), '89;120', 'two generations')
  t.equal(targets('8.7\\n10.3\\n'), '86;100f', 'GPUs that run the code of older ones')
  t.equal(targets('7.5\\n'), '121', 'a GPU that no target fits: as without one')
  t.equal(targets('No devices were found\\n'), '121', 'no GPU')
  t.end()
})

t.test('DGX_SPARK_CUDA_ARCHS names others, prebuilds have all', { skip }, t => {
  t.equal(targets('12.1\\n', '80,90a'), '80;90a')
  t.equal(targets('12.1\\n', 'all'), '80;86;89;90;90a;100f;120;121')
  t.end()
})

t.test(
  'a folder without kernels is refused by its name',
  { skip: !has('cmake') && 'not installed: cmake' },
  t => {
    const options = ['-S', root, '-B', path.join(work, 'none'), `-DDGX_SPARK_FATBINS=${work}`]
    t.throws(() => run(root, 'cmake', options), /DGX_SPARK_FATBINS has no \w+\.fatbin/)
    t.end()
  },
)

t.test('the commands build what they should', t => {
  const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
  for (const arch of ['x64', 'arm64']) {
    t.match(
      scripts[`prebuilds:${arch}`],
      /^DGX_SPARK_CUDA_ARCHS=\$\{DGX_SPARK_CUDA_ARCHS:-all\} prebuildify/,
      arch,
    )
    t.match(
      scripts[`prebuilds:${arch}`],
      / --node-gyp native\/build\.cjs$/,
      'prebuilds reuse what build made',
    )
  }
  t.equal(scripts['build:native'], 'node native/build.cjs')
  for (const file of ['.ci/run', 'quickstart.sh']) {
    const text = readFileSync(path.join(root, file), 'utf8')
    t.notMatch(text, /DGX_SPARK_CUDA_ARCHS/, `${file} builds what a newcomer's build has`)
  }
  t.end()
})
