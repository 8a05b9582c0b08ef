// interpreter.ts: evaluates the syntax tree of a template, with the meaning that Jinja2 gives it and bounds on what it does.
import type { CallNode, ForNode, MacroNode, Node } from './ast.js'
import { describe } from './ast.js'
import { countDepth, countSteps, countUnits, TemplateError } from './budget.js'
import { applyFilter } from './filters.js'
import { methodOf } from './methods.js'
import { binary, unary } from './operators.js'
import { testOf } from './tests.js'
import {
  type Callable,
  expectInt,
  expectItems,
  Float,
  isTrue,
  Namespace,
  orUndefined,
  Tuple,
  textOf,
  typeOf,
  Undefined,
  type Value,
} from './values.js'

/** Names with their values; those of the scope around are seen, not changed. */
export class Scope {
  readonly #values = new Map<string, Value>()
  readonly #around: Scope | undefined

  constructor(around?: Scope) {
    this.#around = around
  }

  set(name: string, value: Value): void {
    this.#values.set(name, value)
  }

  get(name: string): Value {
    const value = this.#values.get(name)
    if (value !== undefined) return value
    return this.#around ? this.#around.get(name) : new Undefined(name)
  }
}

/** A loop makes a scope and the variable `loop` for each item. */
const stepsOfIteration = 10

/** How a block ended: at its end, or at a break or continue. */
type Flow = 'end' | 'break' | 'continue'

interface Arguments {
  readonly args: Value[]
  readonly named: Map<string, Value>
}

/** Evaluates one rendering. */
export class Interpreter {
  readonly #output: string[][] = []

  /** The text that statements write. */
  render(body: readonly Node[], scope: Scope): string {
    const parts: string[] = []
    this.#output.push(parts)
    try {
      this.#block(body, scope)
    } finally {
      this.#output.pop()
    }
    return parts.join('')
  }

  #write(text: string): void {
    countUnits(text.length)
    this.#output.at(-1)!.push(text)
  }

  #block(body: readonly Node[], scope: Scope): Flow {
    for (const node of body) {
      const flow = this.#statement(node, scope)
      if (flow !== 'end') return flow
    }
    return 'end'
  }

  #statement(node: Node, scope: Scope): Flow {
    switch (node.type) {
      case 'Comment':
        return 'end'
      case 'Break':
        return 'break'
      case 'Continue':
        return 'continue'
      case 'If':
        return this.#block(isTrue(this.evaluate(node.test, scope)) ? node.body : node.alternate, scope)
      case 'For':
        located(node, () => this.#for(node, scope))
        return 'end'
      case 'Set':
        located(node, () => this.#set(node, scope))
        return 'end'
      case 'Macro':
        scope.set(node.name.value, this.#macro(node, scope))
        return 'end'
      case 'FilterStatement':
        this.#write(textOf(this.#filter(this.render(node.body, new Scope(scope)), node.filter, scope)))
        return 'end'
      case 'CallStatement':
        this.#write(textOf(this.#callBlock(node, scope)))
        return 'end'
      default:
        this.#write(textOf(this.evaluate(node, scope)))
        return 'end'
    }
  }

  #for(node: ForNode, scope: Scope): void {
    const select = node.iterable.type === 'SelectExpression' ? node.iterable : undefined
    const given = expectItems(this.evaluate(select ? select.lhs : node.iterable, scope))
    countSteps(stepsOfIteration * given.length)
    const items = given.filter(item => {
      if (!select) return true
      const inner = new Scope(scope)
      this.#assign(node.loopvar, item, inner)
      return isTrue(this.evaluate(select.test, inner))
    })
    if (items.length === 0) this.#block(node.defaultBlock, new Scope(scope))
    for (const [i, item] of items.entries()) {
      const inner = new Scope(scope)
      inner.set('loop', loopOf(items, i))
      this.#assign(node.loopvar, item, inner)
      if (this.#block(node.body, inner) === 'break') return
    }
  }

  #set(node: Extract<Node, { type: 'Set' }>, scope: Scope): void {
    const value = node.value ? this.evaluate(node.value, scope) : this.render(node.body, new Scope(scope))
    this.#assign(node.assignee, value, scope)
  }

  #assign(target: Node, value: Value, scope: Scope): void {
    if (target.type === 'Identifier') scope.set(target.value, value)
    else if (target.type === 'TupleLiteral') {
      const items = expectItems(value)
      if (items.length !== target.value.length)
        throw new TemplateError(
          `${items.length} values for the names ${target.value.map(describe).join(', ')}`,
        )
      for (const [i, name] of target.value.entries()) this.#assign(name, items[i]!, scope)
    } else if (target.type === 'MemberExpression') {
      const object = this.evaluate(target.object, scope)
      if (!(object instanceof Namespace))
        throw new TemplateError(`attributes of ${typeOf(object)} can not be set, only those of a namespace`)
      object.values.set(this.#key(target, scope), value)
    } else throw new TemplateError(`${describe(target)} can not be set`)
  }

  #macro(node: MacroNode, scope: Scope): Callable {
    return (args, named) =>
      countDepth(() =>
        this.#callMacro(node.args, node.body, scope, { args: [...args], named: new Map(named) }),
      )
  }

  #callMacro(
    parameters: readonly Node[],
    body: readonly Node[],
    scope: Scope,
    { args, named }: Arguments,
  ): string {
    const inner = new Scope(scope)
    for (const [i, parameter] of parameters.entries()) {
      const hasDefault = parameter.type === 'KeywordArgumentExpression'
      const key = hasDefault ? parameter.key.value : (parameter as { value: string }).value
      const given = i < args.length ? args[i] : named.get(key)
      named.delete(key)
      const isDefault = given === undefined && hasDefault
      inner.set(key, isDefault ? this.evaluate(parameter.value, inner) : orUndefined(given, key))
    }
    const caller = named.get('caller')
    inner.set('caller', orUndefined(caller, 'caller'))
    named.delete('caller')
    inner.set('varargs', args.slice(parameters.length))
    inner.set('kwargs', new Map(named))
    return this.render(body, inner)
  }

  #callBlock(node: Extract<Node, { type: 'CallStatement' }>, scope: Scope): Value {
    const caller: Callable = (args, named) =>
      countDepth(() =>
        this.#callMacro(node.callerArgs ?? [], node.body, scope, { args: [...args], named: new Map(named) }),
      )
    return this.#call(node.call, scope, new Map([['caller', caller]]))
  }

  #arguments(nodes: readonly Node[], scope: Scope): Arguments {
    const args: Value[] = []
    const named = new Map<string, Value>()
    for (const node of nodes) {
      if (node.type === 'KeywordArgumentExpression')
        named.set(node.key.value, this.evaluate(node.value, scope))
      else if (node.type === 'SpreadExpression')
        args.push(...expectItems(this.evaluate(node.argument, scope)))
      else if (node.type === 'KeywordSpreadExpression') {
        const dict = this.evaluate(node.argument, scope)
        if (!(dict instanceof Map)) throw new TemplateError(`** needs a dict, got ${typeOf(dict)}`)
        for (const [key, value] of dict) named.set(textOf(key), value)
      } else args.push(this.evaluate(node, scope))
    }
    return { args, named }
  }

  #call(node: CallNode, scope: Scope, extra: ReadonlyMap<string, Value> = new Map()): Value {
    const callee = this.evaluate(node.callee, scope)
    if (typeof callee !== 'function')
      throw new TemplateError(
        callee instanceof Undefined
          ? `'${callee.name}' is undefined and can not be called`
          : `${typeOf(callee)} can not be called`,
      )
    const { args, named } = this.#arguments(node.args, scope)
    return callee(args, new Map([...named, ...extra]))
  }

  #filter(value: Value, filter: Node, scope: Scope): Value {
    if (filter.type === 'Identifier') return applyFilter(filter.value, value, { args: [], named: new Map() })
    if (filter.type !== 'CallExpression' || filter.callee.type !== 'Identifier')
      throw new TemplateError(`${describe(filter)} is no filter`)
    const { args, named } = this.#arguments(filter.args, scope)
    return applyFilter(filter.callee.value, value, { args, named })
  }

  /** The value of an expression. */
  evaluate(node: Node, scope: Scope): Value {
    countSteps(1)
    return located(node, () => this.#expression(node, scope))
  }

  #expression(node: Node, scope: Scope): Value {
    switch (node.type) {
      case 'StringLiteral':
      case 'IntegerLiteral':
        return node.value
      case 'FloatLiteral':
        return new Float(node.value)
      case 'ArrayLiteral':
        return node.value.map(item => this.evaluate(item, scope))
      case 'TupleLiteral':
        return Tuple.from(node.value, item => this.evaluate(item, scope)) as Tuple
      case 'ObjectLiteral':
        return new Map(
          [...node.value].map(([key, item]) => [this.evaluate(key, scope), this.evaluate(item, scope)]),
        )
      case 'Identifier':
        return scope.get(node.value)
      case 'MemberExpression':
        return this.#member(node, scope)
      case 'CallExpression':
        return this.#call(node, scope)
      case 'FilterExpression':
        return this.#filter(this.evaluate(node.operand, scope), node.filter, scope)
      default:
        return this.#operation(node, scope)
    }
  }

  #operation(node: Node, scope: Scope): Value {
    switch (node.type) {
      case 'BinaryExpression':
        return this.#binary(node, scope)
      case 'UnaryExpression': {
        const argument = this.evaluate(node.argument, scope)
        return node.operator.value === 'not' ? !isTrue(argument) : unary(node.operator.value, argument)
      }
      case 'TestExpression':
        return testOf(node.test.value)(this.evaluate(node.operand, scope), null) !== node.negate
      case 'SelectExpression':
        return isTrue(this.evaluate(node.test, scope))
          ? this.evaluate(node.lhs, scope)
          : new Undefined('else')
      case 'Ternary':
        return this.evaluate(
          isTrue(this.evaluate(node.condition, scope)) ? node.trueExpr : node.falseExpr,
          scope,
        )
      default:
        throw new TemplateError(`${node.type} is not known`)
    }
  }

  #binary(node: Extract<Node, { type: 'BinaryExpression' }>, scope: Scope): Value {
    const left = this.evaluate(node.left, scope)
    const operator = node.operator.value
    if (operator === 'and') return isTrue(left) ? this.evaluate(node.right, scope) : left
    if (operator === 'or') return isTrue(left) ? left : this.evaluate(node.right, scope)
    return binary(operator, left, this.evaluate(node.right, scope))
  }

  #key(node: Extract<Node, { type: 'MemberExpression' }>, scope: Scope): Value {
    if (node.computed || node.property.type !== 'Identifier') return this.evaluate(node.property, scope)
    return node.property.value
  }

  #member(node: Extract<Node, { type: 'MemberExpression' }>, scope: Scope): Value {
    const object = this.evaluate(node.object, scope)
    if (node.property.type === 'SliceExpression') return this.#slice(object, node.property, scope)
    const key = this.#key(node, scope)
    if (object instanceof Undefined)
      throw new TemplateError(`'${object.name}' is undefined and has no attribute '${textOf(key)}'`)
    if (typeof key === 'number' && (typeof object === 'string' || Array.isArray(object)))
      return orUndefined(expectItems(object).at(key), describe(node))
    const values = object instanceof Namespace ? object.values : object
    const method = typeof key === 'string' ? methodOf(values, key) : undefined
    if (method && !node.computed) return method
    if (values instanceof Map) return orUndefined(values.get(key), textOf(key))
    return method ?? new Undefined(describe(node))
  }

  #slice(object: Value, node: Extract<Node, { type: 'SliceExpression' }>, scope: Scope): Value {
    const items = expectItems(object)
    countUnits(items.length)
    const bound = (part: Node | undefined): number | undefined => {
      const value = part && this.evaluate(part, scope)
      return value === undefined || value === null || value instanceof Undefined
        ? undefined
        : expectInt(value, 'slice')
    }
    const [start, stop, step = 1] = [bound(node.start), bound(node.stop), bound(node.step)]
    if (step === 0) throw new TemplateError('the step of a slice must not be 0')
    const { length } = items
    const clamp = (index: number, min: number, max: number): number =>
      Math.min(Math.max(index < 0 ? index + length : index, min), max)
    const from =
      start === undefined
        ? step > 0
          ? 0
          : length - 1
        : clamp(start, step > 0 ? 0 : -1, step > 0 ? length : length - 1)
    const to = stop === undefined ? (step > 0 ? length : -1) : clamp(stop, step > 0 ? 0 : -1, length)
    const found: Value[] = []
    for (let i = from; step > 0 ? i < to : i > to; i += step) found.push(items[i]!)
    return typeof object === 'string' ? found.join('') : found
  }
}

/** Errors whose message says where. */
const isLocated = new WeakSet<Error>()

/** Runs what a node does; an error names the innermost node that fails. */
function located<T>(node: Node, run: () => T): T {
  try {
    return run()
  } catch (error) {
    if (error instanceof TemplateError && error.kind === 'failed' && !isLocated.has(error)) {
      isLocated.add(error)
      error.message = `${error.message}, in ${describe(node).slice(0, 200)}`
    }
    throw error
  }
}

/** The variable `loop`. */
function loopOf(items: readonly Value[], i: number): Value {
  const { length } = items
  const cycle: Callable = args => args[i % args.length] ?? null
  return new Map<Value, Value>([
    ['index', i + 1],
    ['index0', i],
    ['revindex', length - i],
    ['revindex0', length - i - 1],
    ['first', i === 0],
    ['last', i === length - 1],
    ['length', length],
    ['previtem', orUndefined(items[i - 1], 'loop.previtem')],
    ['nextitem', orUndefined(items[i + 1], 'loop.nextitem')],
    ['cycle', cycle],
  ])
}
