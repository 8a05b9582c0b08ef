// `dgx-spark bench`: tables, peers, saved results, usage errors, Ctrl-C; its page as a browser shows it.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { serializeNpy } from '#lib/io/npy.js'
import { Browser, noBrowser } from '../fixtures/browser.js'
import { fakeTrtexec } from '../fixtures/trtexec.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const folder = t.testdir({})
const at = (name: string): string => path.join(folder, name)
const data = process.env.DGX_SPARK_TEST_DATA
const digits = data ? path.join(data, 'models/mnist/mnist-8.onnx') : ''
const noDigits = existsSync(digits)
  ? false
  : 'DGX_SPARK_TEST_DATA names no folder with models/mnist/mnist-8.onnx'

const hostile = '</script><img src=x onerror="document.title=1">'
for (const [name, output] of [
  ['small', 'y'],
  ['hostile', hostile],
] as const) {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['rows', 3]) }],
    outputs: [{ name: output }],
    nodes: [makeNode('MatMul', ['x', 'w'], [output])],
    initializers: new Map([['w', Constant.f32([1, -1, 2, 0, 0, 3], [3, 2])]]),
  })
  const model = await Model.fromGraph(graph, { backend: 'js' })
  await model.save(at(`${name}.onnx`))
  model.dispose()
}
writeFileSync(at('broken.onnx'), 'no model')
const quick = ['--runs', '6', '--warmup', '1', '--backend', 'js']
const env = { PATH: process.env.PATH!, HOME: process.env.HOME ?? '' }

function cli(args: readonly string[], more: Record<string, string> = {}) {
  const result = spawnSync(process.execPath, ['--no-warnings', main, 'bench', ...args], {
    encoding: 'utf8',
    env: { ...env, ...more },
    cwd: folder,
  })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

t.test('tables of precisions and peers', async t => {
  const { status, stdout, stderr } = cli([
    'small.onnx',
    ...quick,
    '--precision',
    'fp32,bf16',
    '--vs',
    'onnxruntime',
  ])
  t.equal(status, 0, stderr)
  for (const name of ['js fp32', 'js bf16', 'onnxruntime cpu']) t.match(stdout, name)
  t.match(stdout, /latency, ms.*mean.*std.*p50.*p90.*p99.*min.*max.*inferences\/s/)
  t.match(stdout, /js bf16 against js fp32.*y/)
  t.match(stdout, /no energy: /)
  t.match(stdout, /inputs +seed 0; 1 runs to warm up/)
  const warned = stdout.indexOf('warning: ')
  t.ok(warned <= 0, 'warnings are first')
})

t.test('two engines, JSON', async t => {
  const args = [
    'small.onnx',
    '--runs',
    '5',
    '--precision',
    'fp32',
    '--backend',
    'js,cpu',
    '--batch',
    '4',
    '--seed',
    '9',
  ]
  const { name, batch, seed, peers, comparisons, outputs, warnings } = cli([...args, '--json']).json()
  t.match({ name, batch, seed }, { name: 'js fp32', batch: 4, seed: 9 })
  t.ok(Array.isArray(warnings))
  t.equal(peers.length, 1)
  t.same(outputs[0].shape, [4, 2])
  t.match(comparisons, [{ names: { a: 'js fp32', b: peers[0].name }, outputs: [{ name: 'y' }] }])
})

t.test('ONNX Runtime on a model of others', { skip: noDigits }, async t => {
  const args = ['--runs', '10', '--backend', 'cpu', '--precision', 'fp32', '--vs', 'onnxruntime', '--json']
  const { comparisons, peers } = cli([digits, ...args]).json()
  t.equal(peers[0].samples.length, 10)
  const [{ cosine, maxError }] = comparisons[0].outputs
  t.ok(cosine > 0.99999 && maxError < 1e-3, `${cosine} ${maxError}`)
})

t.test('trtexec', async t => {
  const PATH = fakeTrtexec(at('programs'))
  const { status, stdout, stderr } = cli(['small.onnx', ...quick, '--vs', 'trtexec'], { PATH })
  t.equal(status, 0, stderr)
  t.match(stdout, /trtexec \w+ .* 1\.500 .* – .* 1\.375 .* 1\.750 .* 3\.250 .* 813 .* 1\.125/)
})

t.test('given inputs, sizes and labels', async t => {
  writeFileSync(
    at('x.npy'),
    Buffer.concat(
      serializeNpy(
        Tensor.from([
          [1, 2, 3],
          [4, 5, 6],
        ]),
        'x',
      ),
    ),
  )
  // Scores are [5, 8] and [14, 14]: classes 1 and, of equal ones, the first.
  writeFileSync(at('labels.npy'), Buffer.concat(serializeNpy(Tensor.from([1, 1]), 'labels')))
  const args = ['small.onnx', ...quick, '--precision', 'fp32,bf16']
  const given = [...args, '--input', 'x=x.npy', '--labels', 'labels.npy']
  const { outputs, comparisons } = cli([...given, '--json', '--output', 'given.json']).json()
  t.same(outputs, [{ name: 'y', shape: [2, 2], values: [5, 8, 14, 14] }])
  t.same(comparisons[0].accuracy, { a: 0.5, b: 0.5, rows: 2 })
  t.match(cli(given).stdout, /accuracy .*50\.00 % -> 50\.00 %/s)
  t.match(
    cli(['--compare', 'given.json', 'given.json', '--labels', 'labels.npy']).stdout,
    '50.00 % -> 50.00 %',
  )
  t.same(cli([...args, '--size', 'rows=7', '--json']).json().outputs[0].shape, [7, 2])
  t.match(cli([...args, '--labels', 'labels.npy']), {
    status: 1,
    stderr: /has 1 rows of classes.*ERR_ARGUMENT/,
  })
  t.match(cli(['small.onnx', ...quick, '--labels', 'labels.npy']), {
    status: 2,
    stderr: /needs a comparison/,
  })
  t.match(cli([...args, '--size', 'row=7']), { status: 2, stderr: /did you mean 'rows'/ })
})

t.test('saved results', async t => {
  const save = (file: string, ...more: string[]) => {
    const { status, stderr, stdout } = cli(['small.onnx', ...quick, '--output', file, ...more])
    t.equal(status, 0, stderr)
    t.match(stdout, `wrote ${file}`)
  }
  save('before.json', '--precision', 'fp32,bf16')
  save('after.json', '--precision', 'bf16')
  save('other.json', '--precision', 'fp16', '--seed', '1')
  const { status, stdout, stderr } = cli(['--compare', 'before.json', 'after.json', 'other.json'])
  t.equal(status, 0, stderr)
  t.match(stdout, /after: js bf16 +│ before: js bf16 /, 'same names are compared')
  t.match(stdout, /other: js fp16 +│ before: js fp32 /, 'without one, the first ones')
  t.match(stdout, /after: js bf16 against before: js bf16 │ y +│ 1\.0000000 │ +0 │ +0 /)
  t.match(stdout, /other: js fp16: outputs are not compared: the inputs differ/)
  const { comparisons } = cli(['--compare', 'before.json', 'after.json', '--json']).json()
  t.match(comparisons, [
    { names: { a: 'before: js bf16', b: 'after: js bf16' }, latency: { speedup: Number } },
  ])

  writeFileSync(at('text.json'), 'no JSON')
  writeFileSync(at('wrong.json'), '{"name": "x", "peers": []}')
  const before = JSON.parse(readFileSync(at('before.json'), 'utf8'))
  writeFileSync(at('cores.json'), JSON.stringify({ ...before, use: { ...before.use, cpu: {} } }))
  for (const file of ['text.json', 'wrong.json', 'cores.json'])
    t.match(cli(['--compare', 'before.json', file]), {
      status: 1,
      stderr: `dgx-spark: ${file} holds no result that dgx-spark bench --output has written [ERR_FORMAT]\n`,
    })
  t.match(cli(['--compare', 'before.json', 'missing.json']), { status: 1, stderr: /ERR_IO/ })
})

t.test('models together', async t => {
  const args = ['--together', 'small.onnx,hostile.onnx', '--hz', '100', '--runs', '6', '--backend', 'js']
  const { status, stdout, stderr } = cli([...args, '--output', 'together.json'])
  t.equal(status, 0, stderr)
  t.match(stdout, /small js .*\n.*hostile js .*\n.*all models/)
  t.match(stdout, /frames +6, one each 10\.0 ms/)
  t.match(stdout, /deadline +missed by \d+ frames; \d+ ticks were left out/)
  t.match(JSON.parse(readFileSync(at('together.json'), 'utf8')), { frames: 6, models: [{}, {}] })
})

t.test('usage errors take three lines', async t => {
  const cases: [string[], RegExp][] = [
    [[], /a model is missing/],
    [['small.onnx', '--vs', 'onnxruntim'], /did you mean 'onnxruntime'/],
    [['small.onnx', '--backend', 'js,cpi'], /did you mean 'cpu'/],
    [['small.onnx', '--precision', 'fp32,bf17'], /did you mean 'bf16'/],
    [['small.onnx', '--run', '3'], /did you mean --runs/],
    [['small.onnx', '--runs', '0'], /expected an integer from 1/],
    [['small.onnx', '--hz', '20'], /--hz and --seconds need --together/],
    [['--compare', 'a.json'], /--compare needs two results/],
    [['small.onnx', '--together', 'a.onnx'], /--together takes no model beside it/],
    [['--together', 'small.onnx', '--batch', '2'], /--batch means nothing beside --together/],
    [['--together', 'small.onnx', '--backend', 'js,cpu'], /one precision and one backend/],
    [['--together', 'small.onnx', '--runs', '2', '--seconds', '2'], /give one of them/],
  ]
  for (const [args, message] of cases) {
    const { status, stderr, stdout } = cli(args)
    t.equal(status, 2, args.join(' '))
    t.match(stderr, message)
    t.equal(stderr.trim().split('\n').length, 3, stderr)
    t.equal(stdout, '')
  }
})

t.test('broken input', async t => {
  t.match(cli(['broken.onnx', ...quick]), { status: 1, stdout: '', stderr: /broken\.onnx.*\[ERR_FORMAT\]/ })
  t.match(cli(['missing.onnx', ...quick]), { status: 1, stderr: /\[ERR_IO\]/ })
  t.match(cli(['small.onnx', ...quick, '--vs', 'broken.onnx']), { status: 1, stderr: /\[ERR_FORMAT\]/ })
  t.match(cli(['small.onnx', ...quick, '--vs', 'onnxruntime:nowhere']), { status: 1, stderr: /ONNX Runtime/ })
  t.match(cli(['small.onnx', ...quick, '--output', 'no/folder.json']), { status: 1, stderr: /\[ERR_IO\]/ })
})

t.test('Ctrl-C prints what was measured', { skip: process.platform === 'win32' }, async t => {
  const args = ['small.onnx', '--runs', '900000', '--warmup', '0', '--backend', 'js', '--json']
  /** What it prints when it is interrupted after some time; '' when that was before it measured. */
  async function interrupted(seconds: number): Promise<string> {
    const child = spawn(process.execPath, ['--no-warnings', main, 'bench', ...args], { cwd: folder, env })
    const timer = setTimeout(() => child.kill('SIGINT'), 1000 * seconds)
    let text = ''
    child.stdout.on('data', chunk => {
      text += chunk
    })
    const code = await new Promise(resolve => child.on('close', resolve))
    clearTimeout(timer)
    // Before its first line Node.js itself ends it.
    if (text !== '') t.equal(code, 130)
    return text
  }
  let text = ''
  for (let seconds = 3; text === '' && seconds < 60; seconds *= 2) text = await interrupted(seconds)
  const result = JSON.parse(text)
  t.equal(result.interrupted, true)
  t.ok(result.runs > 0 && result.runs < 900_000)
  t.equal(result.samples.length, result.runs)
})

t.test('the page', { skip: noBrowser }, async t => {
  const page = at('page.html')
  const args = ['hostile.onnx', ...quick, '--precision', 'fp32,bf16', '--html', page]
  t.equal(cli(args).status, 0)
  const browser = new Browser()
  t.teardown(() => browser.close())
  await browser.prefer('light')
  await browser.open(page)
  const count = (selector: string): Promise<number> =>
    browser.evaluate(`document.querySelectorAll('${selector}').length`)
  t.equal(await count('.plot canvas'), 2)
  t.equal(await browser.evaluate('document.title'), 'Benchmark of hostile.onnx')
  t.equal(await count('table:not(.u-legend)'), 4)
  t.equal(await count('img'), 0, 'names of files are text')
  t.equal(await count('.u-legend .u-series'), 2 * 3)
  t.match(await browser.evaluate("document.querySelector('main').textContent"), hostile)
  const look = 'getComputedStyle(document.body).backgroundColor'
  const light = await browser.evaluate(look)
  await browser.evaluate("document.getElementById('theme').click()")
  t.not(await browser.evaluate(look), light)

  await t.test('on paper', async t => {
    await browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    t.equal(await browser.evaluate(look), light, 'light')
    t.ok((await browser.print()).subarray(0, 5).equals(Buffer.from('%PDF-')))
    await browser.evaluate("dispatchEvent(new Event('afterprint'))")
    t.not(await browser.evaluate(look), light, 'as before')
  })

  await t.test('on a telephone', async t => {
    await browser.resize(400, 800)
    await browser.open(page)
    t.equal(await browser.evaluate('innerWidth'), 400)
    t.ok(
      (await browser.evaluate<number>('document.documentElement.scrollWidth')) <= 400,
      'nothing sticks out',
    )
    t.equal(await count('.plot canvas'), 2)
    t.ok((await browser.evaluate<number>("document.querySelector('.plot canvas').clientWidth")) <= 400)
  })
  t.same(browser.complaints, [])
})
