// run --cluster and generate --cluster: a model on the node that runs it and on one that is up.
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { hostname } from 'node:os'
import path from 'node:path'
import { GraphBuilder, Model, Tensor, TextModel } from 'dgx-spark'
import t from 'tap'
import { ClusterNode } from '#lib/cluster/node/cluster-node.js'
import { connectToOwn } from '#lib/cluster/node/own-links.js'
import { answerOver } from '#lib/cluster/own-link.js'
import { loadThroughOwnNode } from '#lib/cluster/own-models.js'
import { serveOwnPrograms } from '#lib/cluster/own-programs.js'
import { loadTextThroughOwnNode } from '#lib/cluster/own-text.js'
import { modelCosts } from '#lib/cluster/placement/model-costs.js'
import { freePort } from '../fixtures/cluster/free-port.js'
import { up } from '../fixtures/cluster/up.js'
import { writeChatModel } from '../fixtures/text/chat-model.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const run = (...args: readonly string[]) =>
  spawnSync(process.execPath, ['--no-warnings', main, ...args], { encoding: 'utf8', timeout: 120_000 })

/** Writes a model of six layers; into how many it can be cut. */
async function writeModel(file: string): Promise<number> {
  const g = new GraphBuilder()
  let h = g.input('x', 'f32', [2, 32])
  for (let i = 0; i < 6; i++) {
    const w = g.initializer(`w${i}`, Tensor.random([32, 32], { seed: i, distribution: 'normal' }))
    h = g.add('Tanh', [g.add('MatMul', [h, w])])
  }
  g.output(h, 'y')
  const graph = g.build()
  using model = await Model.fromGraph(graph)
  await model.save(file)
  return (await modelCosts(graph)).layers.length
}

t.test('run --cluster', async t => {
  const folder = t.testdir({})
  const [one, two, file] = ['one', 'two', 'model.onnx'].map(name => path.join(folder, name)) as [
    string,
    string,
    string,
  ]
  const layers = await writeModel(file)
  const [port, otherPort] = [await freePort(), await freePort()]
  const plain = ['--no-mdns', '--host', '127.0.0.1', '--state-port', '0']
  const cluster = ['--cluster', '--no-mdns', '--cluster-home', two, '--cluster-port', `${otherPort}`]
  t.match(run('run', file, ...cluster), { status: 1, stderr: /of no cluster.*dgx-spark up/ })
  t.match(run('run', file, ...cluster, '--token', `${two}.jwt`), { status: 1, stderr: /--token .*two\.jwt/ })
  const first = await up(t, [
    ...plain,
    '--home',
    one,
    '--cluster',
    'lab',
    '--name',
    'one',
    '--port',
    `${port}`,
  ])
  const { code } = JSON.parse(run('invite', '--home', one, '--json').stdout)
  const joined = [
    ...plain,
    '--home',
    two,
    '--join',
    code,
    '--at',
    `127.0.0.1:${port}`,
    '--port',
    `${otherPort}`,
  ]
  const second = await up(t, joined)
  await first.until(/"type":"node-online"/)
  const pins = ['--pin', `0-${(layers >> 1) - 1}=one`]
  const engine = ['--backend', 'cpu', '--precision', 'fp32', '--compare', 'cpu', '--tolerance', '0']
  const wanted = ['--nodes', '2', ...pins, ...engine, '--runs', '2', '--json']
  const isGood = ({ status, stdout, stderr }: ReturnType<typeof run>): void => {
    t.equal(status, 0, stderr)
    const { stages, differences } = JSON.parse(stdout)
    t.equal(stages[0].node, 'one')
    t.equal(stages.at(-1).end, 12)
    t.match(differences, [{ maxError: 0 }])
    t.match(stderr, /loaded: one .* fetched/)
  }
  isGood(run('run', file, ...cluster, ...wanted))
  t.match(run('run', file, ...cluster, '--pin', '0-99=one'), { status: 1, stderr: /pin '0-99=one'/ })
  const chat = path.join(folder, 'chat')
  mkdirSync(chat)
  writeChatModel(chat)
  const prompt = 'The lighthouse keeper'
  const text = [
    'generate',
    chat,
    prompt,
    '--max-tokens',
    '20',
    '--seed',
    '1',
    '--temperature',
    '1',
    ...cluster,
  ]
  using alone = await TextModel.load(chat, { backend: 'cpu' })
  const expected = await alone.generate(prompt, { maxTokens: 20, seed: 1, temperature: 1 }).result()
  const layersOfText = ['--pin', 'embedding-0=one', '--pin', `1-head=${hostname().split('.')[0]}`]
  const isSame = ({ status, stdout, stderr }: ReturnType<typeof run>, layers: RegExp): void => {
    t.equal(status, 0, stderr)
    const { text, backend, tokens, finishReason } = JSON.parse(stdout)
    t.equal(text, expected.text)
    t.equal(finishReason, expected.finishReason)
    t.match(backend, { reason: /nodes of a cluster: 2/ })
    t.same(
      tokens.map(({ id, token }: { id: number; token: string }) => [id, token]),
      expected.ids.map(id => [id, alone.tokenizer.tokenOf(id)]),
    )
    t.match(stderr, layers)
  }
  t.match(run('generate', '--help').stdout, /--strategy <kind>[\s\S]*--nodes 2 --strategy tensor$/m)
  const onBoth = [...text, '--backend', 'cpu', '--nodes', '2', '--json']
  const isSpread = (): void =>
    isSame(run(...onBoth, ...layersOfText), /^dgx-spark: one: embedding, layer 0$/m)
  const isShared = (): void => {
    const shared = (): ReturnType<typeof run> => run(...onBoth, '--strategy', 'tensor')
    // A machine that is busy measures a link as slower than layers can be shared over.
    const isSlow = /takes \d+\.\d+ ms there and back; tensor parallelism needs 1 ms or less/
    let given = shared()
    for (let i = 0; i < 4 && isSlow.test(given.stderr); i++) given = shared()
    if (isSlow.test(given.stderr)) t.equal(given.status, 1)
    else isSame(given, /^dgx-spark: [\w-]+\+one: embedding, layers 0-1, head, sums over stream$/m)
  }
  isSpread()
  isShared()
  t.match(run(...text, '--pin', '7=one'), { status: 1, stderr: /pin '7=one'/ })
  t.match(run(...text, '--logit-bias', '3=-Infinity'), { status: 0 }, 'biases may be infinite')
  second.child.kill('SIGINT')
  await once(second.child, 'exit')

  isGood(run('run', file, ...cluster, ...wanted))
  t.match(run('run', file, ...cluster, '--pin', '0-99=one'), { status: 1, stderr: /pin '0-99=one'/ })
  isSpread()
  isShared()
  t.match(run(...text, '--pin', '7=one'), { status: 1, stderr: /pin '7=one'/ })
})

t.test('who has the key of a node uses it while it runs', async t => {
  const home = path.join(t.testdir({}), 'node')
  const node = await ClusterNode.start({
    ...{ home, create: 'lab', host: '127.0.0.1', port: await freePort(), mdns: false, statePort: null },
    ...{ pressure: null, jobs: false },
  })
  t.teardown(() => node.close())
  const load = (file: string) => loadThroughOwnNode(home, file, {}, () => {})
  await t.rejects(load('model.onnx'), { code: 'ERR_IO' }, 'only a node that is up serves programs')
  serveOwnPrograms(node)
  await t.rejects(load('missing.onnx'), { message: /missing\.onnx/ })
  const text = loadTextThroughOwnNode(home, 'missing.gguf', {}, () => {})
  await t.rejects(text, { code: 'ERR_IO', message: /missing\.gguf/ })
  await t.rejects(
    loadThroughOwnNode(home, 'x', { hurry: true } as never, () => {}),
    { code: 'ERR_ARGUMENT' },
  )
  t.strictSame(
    node.state.nodes.map(({ name }) => name),
    [node.state.nodes[0]!.name],
    'it is no other node',
  )
  const other = path.join(t.testdirName, 'other')
  await t.rejects(connectToOwn(other), { code: 'ERR_ARGUMENT', message: /holds no node/ })
  await node.close()
  await t.rejects(load('model.onnx'), { code: 'ERR_IO' })
})

t.test('a program that is interrupted does not wait until its model is loaded', async t => {
  const home = path.join(t.testdir({}), 'node')
  const node = await ClusterNode.start({
    ...{ home, create: 'lab', host: '127.0.0.1', port: await freePort(), mdns: false, statePort: null },
    ...{ pressure: null, jobs: false },
  })
  t.teardown(() => node.close())
  const abort = new AbortController()
  const stopped = new Promise<void>(resolve => {
    node.own.onLink = link => {
      answerOver(link, async (_, signal) => {
        signal.addEventListener('abort', () => resolve())
        abort.abort(new Error('Ctrl-C'))
        return await new Promise<never>(() => {})
      })
    }
  })
  const text = loadTextThroughOwnNode(home, home, { signal: abort.signal }, () => {})
  await t.rejects(text, { message: 'Ctrl-C' })
  await stopped
  await node.close() // in front of its folder, which goes first
})
