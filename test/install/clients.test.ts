// Programs of others around the library: CommonJS in TypeScript, TypeScript without Node's types, and bundles of all kinds.
import { execFile, execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { loadAddon } from '#lib/native.js'

const root = path.resolve(import.meta.dirname, '../..')
/** Packages that are bundled with, and the program; the latter lies where tap does not take it for a test. */
const clients = ['test/clients', 'test/fixtures/clients'].map(folder => path.join(root, folder))
const run = promisify(execFile)

/** A project that has the library installed, as its build makes it. */
function project(folder: string): string {
  const own = path.join(folder, 'node_modules', 'dgx-spark')
  for (const part of ['dist', 'native/declarations.cjs', 'package.json'])
    cpSync(path.join(root, part), path.join(own, part), { recursive: true })
  execFileSync(process.execPath, ['native/declarations.cjs'], { cwd: own })
  const { dependencies } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
  for (const name of Object.keys(dependencies)) {
    const target = path.join(folder, 'node_modules', name)
    mkdirSync(path.dirname(target), { recursive: true })
    symlinkSync(path.join(root, 'node_modules', name), target)
  }
  return folder
}

/** What the compiler says of a program; '' when all is well. */
async function typeErrors(folder: string, file: string, options: readonly string[]): Promise<string> {
  const tsc = path.join(root, 'node_modules/typescript/bin/tsc')
  const always = ['--noEmit', '--strict', '--target', 'es2022', '--skipLibCheck', 'false']
  const args = [tsc, ...always, ...options, file]
  return run(process.execPath, args, { cwd: folder }).then(
    () => '',
    (error: { stdout: string }) => error.stdout,
  )
}

const clusterProgram = `
import { type ClusterState, ClusterNode, InfeasibleError, modelCosts, place, readFleet } from 'dgx-spark/cluster'
export async function main(home: string): Promise<ClusterState['nodes']> {
  const node = await ClusterNode.start({ home, create: 'lab', mdns: false, statePort: null })
  await node.close()
  const fleet = await readFleet({ nodes: [{ name: 'spark', devices: [{ preset: 'GB10' }] }] })
  await place(await modelCosts('model'), fleet).catch(error => {
    if (error instanceof InfeasibleError) console.log(error.violation.kind)
  })
  return node.state.nodes
}
`

t.test('TypeScript', async t => {
  const folder = project(mkdtempSync(path.join(tmpdir(), 'dgx-spark-types-')))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const program = `
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
export async function main(): Promise<Float32Array> {
  const g = new GraphBuilder()
  g.output(g.add('Relu', [g.input('x', 'f32', [2])]), 'y')
  const model: Model = await Model.fromGraph(g.build())
  const { y } = await model.run<{ y: 'f32' }>({ x: Tensor.from([1, 2]) })
  model.dispose()
  const { backend } = await openKernels({ backend: 'cpu' })
  return backend === 'cpu' ? y.data : (await y.add(1)).data
}
`
  for (const name of ['program.cts', 'program.mts', 'program.ts'])
    writeFileSync(path.join(folder, name), program)
  writeFileSync(path.join(folder, 'package.json'), '{ "type": "commonjs" }')
  const cases = [
    ['program.cts', '--module', 'node16'],
    ['program.ts', '--module', 'node16'],
    ['program.cts', '--module', 'nodenext'],
    ['program.mts', '--module', 'node16'],
    ['program.mts', '--module', 'esnext', '--moduleResolution', 'bundler'],
  ] as const
  for (const [file, ...options] of cases)
    t.equal(await typeErrors(folder, file, options), '', `${file} ${options.join(' ')}`)
  mkdirSync(path.join(folder, 'node_modules/@types'), { recursive: true })
  for (const name of ['@types/node', '@types/dns-packet'])
    symlinkSync(path.join(root, 'node_modules', name), path.join(folder, 'node_modules', name))
  for (const file of ['cluster.cts', 'cluster.mts']) {
    writeFileSync(path.join(folder, file), clusterProgram)
    const options = ['--module', 'nodenext', '--types', 'node']
    t.equal(await typeErrors(folder, file, options), '', `${file} ${options.join(' ')}`)
  }
  writeFileSync(
    path.join(folder, 'both.mjs'),
    `import { createRequire } from 'node:module'
import { Model, SparkError, Tensor } from 'dgx-spark'
import { ClusterNode, InfeasibleError } from 'dgx-spark/cluster'
const require = createRequire(import.meta.url)
const [required, cluster] = [require('dgx-spark'), require('dgx-spark/cluster')]
console.log(required.Model === Model, required.Tensor.from([1]) instanceof Tensor)
console.log(cluster.ClusterNode === ClusterNode, InfeasibleError.prototype instanceof SparkError)`,
  )
  const { stdout } = await run(process.execPath, ['--no-warnings', 'both.mjs'], { cwd: folder })
  t.equal(stdout, 'true true\ntrue true\n', 'import and require give one library')
})

/** Bundlers of test/clients in a folder of their own; undefined where no registry answers. */
async function bundlers(folder: string): Promise<string | undefined> {
  for (const part of clients) cpSync(part, folder, { recursive: true })
  const options = ['--no-audit', '--no-fund', '--ignore-scripts', '--prefer-offline', '--fetch-retries=0']
  try {
    await run('npm', ['install', ...options], { cwd: folder, timeout: 120_000 })
    return folder
  } catch {
    return undefined
  }
}

t.test('bundles', { skip: !loadAddon().addon && 'there is no addon' }, async t => {
  const work = mkdtempSync(path.join(tmpdir(), 'dgx-spark-bundles-'))
  const elsewhere = mkdtempSync(path.join(tmpdir(), 'dgx-spark-bundled-'))
  t.teardown(() => {
    for (const folder of [work, elsewhere]) rmSync(folder, { recursive: true, force: true })
  })
  const folder = await bundlers(path.join(work, 'clients'))
  if (!folder) {
    await t.test('esbuild, webpack, rollup, vite', { skip: 'no registry answers' }, () => undefined)
    return
  }
  project(work)
  const prebuilds = path.join(elsewhere, 'addon', 'prebuilds', `${process.platform}-${process.arch}`)
  mkdirSync(prebuilds, { recursive: true })
  const addon = loadAddon() as { path: string }
  cpSync(addon.path, path.join(prebuilds, 'dgx-spark.glibc.node'))
  const { DGX_SPARK_BACKEND: _, ...inherited } = process.env
  const env = { ...inherited, DGX_SPARK_PREBUILD: path.join(elsewhere, 'addon') }
  for (const bundler of ['esbuild', 'webpack', 'rollup', 'vite']) {
    for (const format of ['esm', 'cjs']) {
      const out = path.join(elsewhere, `${bundler}-${format}`)
      mkdirSync(out, { recursive: true })
      const file = path.join(out, format === 'esm' ? 'app.mjs' : 'app.cjs')
      await run(process.execPath, ['bundle.js', bundler, format, file], { cwd: folder })
      const { stdout, stderr } = await run(process.execPath, [file], { cwd: out, env })
      t.equal(stdout, 'cpu 0,2\n', `${bundler}, ${format}: ${stderr}`)
    }
  }
})
