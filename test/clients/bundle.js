// bundle.js: bundles app.js with one bundler in one format, nothing left out: node bundle.js <bundler> <format> <file>.
import { writeFileSync } from 'node:fs'
import path from 'node:path'

const [bundler = '', format = '', file = ''] = process.argv.slice(2)
const [input, folder, name] = [path.resolve('app.js'), path.dirname(file), path.basename(file)]
const isModule = format === 'esm'

const bundlers = {
  async esbuild() {
    const { build } = await import('esbuild')
    const options = /** @type {const} */ ({ bundle: true, platform: 'node', logLevel: 'error' })
    await build({ ...options, entryPoints: [input], format: isModule ? 'esm' : 'cjs', outfile: file })
  },
  async rollup() {
    const { rollup } = await import('rollup')
    const { default: resolve } = await import('@rollup/plugin-node-resolve')
    const { default: commonjs } = await import('@rollup/plugin-commonjs')
    const { default: json } = await import('@rollup/plugin-json')
    const plugins = [resolve({ preferBuiltins: true }), commonjs(), json()]
    const bundle = await rollup({ input, plugins, onwarn: () => undefined })
    await bundle.write({ file, format: isModule ? 'es' : 'cjs', inlineDynamicImports: true })
    await bundle.close()
  },
  async webpack() {
    const { default: webpack } = await import('webpack')
    const output = isModule
      ? { library: { type: 'module' }, chunkFormat: 'module', module: true }
      : { library: { type: 'commonjs2' } }
    const compiler = webpack({
      entry: input,
      target: 'node20',
      mode: 'development',
      devtool: false,
      output: { path: folder, filename: name, ...output },
      experiments: { outputModule: isModule },
    })
    await new Promise((done, fail) => {
      compiler.run((error, stats) => {
        if (error ?? stats?.hasErrors())
          fail(error ?? new Error(stats?.toString({ all: false, errors: true })))
        else done(undefined)
      })
    })
  },
  async vite() {
    const { build } = await import('vite')
    const output = { entryFileNames: name, format: isModule ? 'es' : 'cjs', codeSplitting: false }
    await build({
      configFile: false,
      logLevel: 'error',
      ssr: { noExternal: true, target: 'node' },
      build: { ssr: input, outDir: folder, emptyOutDir: false, rollupOptions: { output } },
    })
  },
}

writeFileSync(path.join(folder, 'package.json'), '{}')
await bundlers[/** @type {keyof typeof bundlers} */ (bundler)]()
