// chat and generate: texts from the command line and stdin, JSON, a conversation on a terminal, wrong usage.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { root } from '../fixtures/docs/pages.js'
import { writeChatModel } from '../fixtures/text/chat-model.js'

const main = path.join(root, 'dist/cli/main.js')
const folder = t.testdir()
const model = path.join(folder, 'chat-model')
writeChatModel(model)
const env = { ...process.env, DGX_SPARK_BACKEND: 'cpu', XDG_CACHE_HOME: folder, NO_COLOR: '1' }

interface Ran {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

const run = (args: readonly string[], input = ''): Ran =>
  spawnSync(process.execPath, ['--no-warnings', main, ...args], { env, input, encoding: 'utf8' })

t.test('generate', async t => {
  const options = ['--max-tokens', '6', '--temperature', '0.7', '--seed', '1']
  const plain = run(['generate', model, 'Once', ...options])
  t.match(plain, { status: 0, stdout: /^Once/ })
  t.equal(run(['generate', model, '-', ...options], 'Once').stdout, plain.stdout)
  const json = run(['generate', model, 'Once', ...options, '--logprobs', '2', '--json'])
  const result = JSON.parse(json.stdout)
  t.match(result, { finishReason: 'length', promptTokens: 4, backend: { name: 'cpu' } })
  t.equal(result.tokens.length, 6)
  t.equal(result.tokens[0].top.length, 2)
  const biased = run(['generate', model, 'Once', '--max-tokens', '3', '--logit-bias', '65=1000', '--json'])
  t.equal(JSON.parse(biased.stdout).text, 'AAA')
  t.match(
    run(['generate', model, 'Once', '--stop', 'AA', '--logit-bias', '65=1000', '--json']).stdout,
    /"stop": "AA"/,
  )
})

t.test('chat answers a message', async t => {
  const options = ['--max-tokens', '6', '--temperature', '0', '--system', 'Answer.']
  const answer = run(['chat', model, 'Hello', ...options])
  t.match(answer, { status: 0, stdout: /.+\n$/ })
  t.equal(run(['chat', model, ...options], 'Hello').stdout, answer.stdout)
})

t.test('wrong usage', async t => {
  const cases: [string[], number, RegExp][] = [
    [['generate', model], 2, /the text is empty/],
    [['generate', model, 'x', '--logprobs', '2'], 2, /--logprobs needs --json/],
    [['generate', model, 'x', '--logit-bias', 'a'], 2, /expected a token id and a number/],
    [['generate', path.join(folder, 'none'), 'x'], 1, /none.*ERR_IO/],
    [['generate', model, 'x'.repeat(600)], 1, /more than the context of 512.*ERR_RANGE/],
    [['chat', model, 'x', '--session', path.join(folder, 'none.json')], 1, /none\.json.*ERR_IO/],
    [['chat', model, 'x', '--top-p', '2'], 2, /--top-p/],
  ]
  for (const [args, status, stderr] of cases)
    t.match(run(args), { status, stderr }, args.slice(2).join(' ').slice(0, 40))
})

const script = ['/usr/bin/script'].find(existsSync)

t.test('a conversation on a terminal', { skip: !script && 'there is no script(1)' }, async t => {
  const saved = path.join(folder, 'talk.json')
  const command = `"${process.execPath}" --no-warnings "${main}" chat "${model}" --max-tokens 8 --temperature 0 --backend js`
  const terminal = spawn(script!, ['-qec', command, '/dev/null'], { env, stdio: ['pipe', 'pipe', 'inherit'] })
  let output = ''
  terminal.stdout.on('data', chunk => {
    output += chunk
  })
  const shows = async (pattern: RegExp): Promise<void> => {
    for (let i = 0; i < 300 && !pattern.test(output); i++)
      await new Promise(resolve => setTimeout(resolve, 100))
    t.match(output, pattern)
    output = ''
  }
  const type = (line: string): void => {
    terminal.stdin.write(`${line}\n`)
  }
  await shows(/tokens of context.*> /s)
  type('Hello')
  await shows(/\d+ tokens, .* of the prompt were there already.*> /s)
  type('/nothing')
  await shows(/there is no command \/nothing.*> /s)
  type('/set temperatur 1')
  await shows(/did you mean.*> /s)
  type('/set maxTokens 400')
  await shows(/> /)
  type('Tell me more')
  await shows(/Tell me more[\r\n]+[^\r\n]/)
  terminal.stdin.write('\x03')
  await shows(/interrupted.*> /s)
  type(`/save ${saved}`)
  await shows(/wrote .*> /s)
  type('/exit')
  t.equal(await new Promise(resolve => terminal.on('exit', resolve)), 0)
  const { messages } = JSON.parse(readFileSync(saved, 'utf8'))
  t.match(messages, [{ role: 'user', content: 'Hello' }, { role: 'assistant' }, { role: 'user' }])
  t.match(readFileSync(path.join(folder, 'dgx-spark/chat-history.json'), 'utf8'), 'Tell me more')
})
