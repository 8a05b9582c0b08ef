// client.js: selection, search, zoom and keys of the page; runs in the browser.
const element = id => document.getElementById(id)
const [search, found, selected] = ['search', 'found', 'selected'].map(element)
const main = document.querySelector('main')
const theme = matchMedia('(prefers-color-scheme: dark)')

/** A graph on the page: its elements, the state of its drawing, and its edges by box. */
class View {
  constructor(section) {
    this.section = section
    this.svg = section.querySelector('.drawing')
    this.canvas = this.svg.querySelector('.canvas')
    this.boxes = [...this.svg.querySelectorAll('.box')]
    this.rows = [...section.querySelectorAll('tbody tr')]
    this.texts = this.boxes.map(box => box.textContent.toLowerCase())
    this.edges = [...this.svg.querySelectorAll('.edge')]
    this.matches = []
    this.current = -1
  }

  get size() {
    return [Number(this.svg.dataset.width), Number(this.svg.dataset.height)]
  }

  /** Shows `x`, `y` of the drawing at the upper left corner. */
  move(x, y, scale) {
    Object.assign(this, { x, y, scale })
    this.canvas.setAttribute('transform', `scale(${scale}) translate(${-x},${-y})`)
    this.svg.classList.toggle('far', scale < 0.42)
    this.svg.classList.toggle('farther', scale < 0.17)
  }

  zoom(factor, px = this.svg.clientWidth / 2, py = this.svg.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.01, this.scale * factor))
    const [x, y] = [this.x + px / this.scale, this.y + py / this.scale]
    this.move(x - px / scale, y - py / scale, scale)
  }

  fit() {
    const [width, height] = this.size
    const scale = Math.min(1.2, this.svg.clientWidth / width, this.svg.clientHeight / height)
    this.show(width / 2, height / 2, scale)
  }

  show(x, y, scale = this.scale) {
    this.move(x - this.svg.clientWidth / scale / 2, y - this.svg.clientHeight / scale / 2, scale)
  }

  /** The centre of a box in the drawing. */
  centre(box) {
    const { e, f } = this.boxes[box].transform.baseVal.consolidate().matrix
    const { width, height } = this.boxes[box].querySelector('.body').getBBox()
    const margin = this.boxes[box].parentNode.transform.baseVal.consolidate().matrix
    return { x: e + margin.e + width / 2, y: f + margin.f + height / 2 }
  }

  select(box, { focus = true, jump = true } = {}) {
    this.current = box
    for (const marked of this.section.querySelectorAll('.current')) marked.classList.remove('current')
    selected.hidden = box < 0
    if (box < 0) return
    this.boxes[box].classList.add('current')
    this.rows[box].classList.add('current')
    for (const edge of this.edges)
      edge.classList.toggle('current', [edge.dataset.from, edge.dataset.to].includes(String(box)))
    this.describe(box)
    if (main.className === 'mode-table') this.rows[box].scrollIntoView({ block: 'center' })
    else if (jump) {
      const { x, y } = this.centre(box)
      this.show(x, y, Math.max(this.scale, 0.8))
    }
    if (focus) this.boxes[box].focus({ preventScroll: true })
  }

  /** Shows the cells of a row as pairs. */
  describe(box) {
    const heads = this.section.querySelectorAll('th')
    const list = document.createElement('dl')
    for (const [i, cell] of [...this.rows[box].cells].entries()) {
      if (cell.textContent === '') continue
      const [name, value] = ['dt', 'dd'].map(tag => list.appendChild(document.createElement(tag)))
      name.textContent = heads[i].textContent
      value.append(...cell.cloneNode(true).childNodes)
    }
    const title = document.createElement('h2')
    title.textContent = 'Selected'
    selected.replaceChildren(title, list)
  }

  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean)
    this.matches = []
    for (const [i, content] of this.texts.entries()) {
      const isMatch = words.length > 0 && words.every(word => content.includes(word))
      this.boxes[i].classList.toggle('match', isMatch)
      this.rows[i].classList.toggle('match', isMatch)
      if (isMatch) this.matches.push(i)
    }
    this.section.classList.toggle('searching', words.length > 0)
    found.value = words.length > 0 ? `${this.matches.length} found` : ''
  }

  /** Selects the next or previous match. */
  step(by) {
    const count = this.matches.length
    if (count === 0) return
    const last = this.matches.indexOf(this.current)
    const next = last < 0 ? (by > 0 ? 0 : count - 1) : (last + by + count) % count
    this.select(this.matches[next], { focus: false })
    found.value = `${next + 1} of ${count}`
  }

  /** The box that an arrow key leads to: along an edge, or to the nearest one beside. */
  neighbour(key) {
    const here = this.centre(this.current)
    const distance = box => {
      const { x, y } = this.centre(box)
      return Math.abs(x - here.x) + 4 * Math.abs(y - here.y)
    }
    const [mine, other] = key === 'ArrowDown' ? ['from', 'to'] : ['to', 'from']
    const isVertical = key === 'ArrowDown' || key === 'ArrowUp'
    const candidates = isVertical
      ? this.edges
          .filter(edge => edge.dataset[mine] === String(this.current))
          .map(edge => Number(edge.dataset[other]))
      : [...this.boxes.keys()].filter(box => {
          const dx = this.centre(box).x - here.x
          return box !== this.current && (key === 'ArrowLeft' ? dx < 0 : dx > 0)
        })
    let [nearest, least] = [this.current, Number.POSITIVE_INFINITY]
    for (const box of candidates) {
      if (distance(box) < least) [nearest, least] = [box, distance(box)]
    }
    return nearest
  }
}

const views = new Map()
let view

/** Shows the view with an id; it is prepared when it is first shown. */
function open(id) {
  const isNew = !views.has(id)
  if (isNew) views.set(id, new View(element(id)))
  if (view !== views.get(id)) {
    view = views.get(id)
    for (const section of document.querySelectorAll('.view')) section.hidden = section.id !== id
    for (const tab of document.querySelectorAll('.tab'))
      tab.toggleAttribute('aria-current', tab.hash === `#${id}`)
    view.find(search.value)
    selected.hidden = true
  }
  if (isNew) view.fit()
}

/** Follows the address: `#g0` is a graph, `#g0n12` its box 12. */
function follow() {
  const [, id, box] = /^#(.*?g\d+)(?:n(\d+))?$/.exec(location.hash) ?? [null, 'g0']
  if (!element(id)) return
  open(id)
  if (box !== undefined && view.boxes[box]) view.select(Number(box))
}

function showTable(isTable) {
  main.className = isTable ? 'mode-table' : 'mode-drawing'
  element('mode').textContent = isTable ? 'Drawing' : 'Table'
  if (view?.current >= 0) view.select(view.current)
}

const isDark = () => (document.documentElement.dataset.theme ?? (theme.matches ? 'dark' : 'light')) === 'dark'
function nameTheme() {
  element('theme').textContent = isDark() ? 'Light' : 'Dark'
}

const actions = {
  '/': () => search.focus(),
  '+': () => view.zoom(1.25),
  '=': () => view.zoom(1.25),
  '-': () => view.zoom(0.8),
  0: () => view.fit(),
  t: () => showTable(main.className === 'mode-drawing'),
  Escape: () => view.select(-1),
}

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  if (event.target === search) {
    if (event.key === 'Enter') view.step(event.shiftKey ? -1 : 1)
    else if (event.key === 'Escape') search.blur()
    return
  }
  const isInDrawing = view.svg.contains(event.target)
  if (isInDrawing && event.key.startsWith('Arrow'))
    view.select(view.current < 0 ? 0 : view.neighbour(event.key))
  else if (isInDrawing && event.key === 'Enter' && event.target.matches('.box'))
    view.select(view.boxes.indexOf(event.target))
  else if (Object.hasOwn(actions, event.key)) actions[event.key]()
  else return
  event.preventDefault()
})

main.addEventListener(
  'wheel',
  event => {
    if (!view.svg.contains(event.target)) return
    event.preventDefault()
    const { left, top } = view.svg.getBoundingClientRect()
    if (event.ctrlKey || event.metaKey)
      view.zoom(Math.exp(-event.deltaY / 200), event.clientX - left, event.clientY - top)
    else view.move(view.x + event.deltaX / view.scale, view.y + event.deltaY / view.scale, view.scale)
  },
  { passive: false },
)

let drag
main.addEventListener('pointerdown', event => {
  if (event.button === 0 && view.svg.contains(event.target))
    drag = { x: event.clientX, y: event.clientY, moved: false }
})
addEventListener('pointermove', event => {
  if (!drag) return
  const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y]
  if (!drag.moved && Math.hypot(dx, dy) < 4) return
  Object.assign(drag, { x: event.clientX, y: event.clientY, moved: true })
  view.move(view.x - dx / view.scale, view.y - dy / view.scale, view.scale)
})
addEventListener('pointerup', event => {
  const box = drag && !drag.moved && !event.target.closest('a') ? event.target.closest('.box') : null
  if (box) view.select(view.boxes.indexOf(box), { jump: false })
  drag = undefined
})
main.addEventListener('click', event => {
  // A link to where the address points already changes nothing: follow it all the same.
  const link = event.target.closest('a[href^="#"], .drawing a')
  if (link && link.getAttribute('href') === location.hash) follow()
})

search.addEventListener('input', () => view.find(search.value))
element('mode').onclick = actions.t
element('in').onclick = actions['+']
element('out').onclick = actions['-']
element('fit').onclick = actions[0]
element('theme').onclick = () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark'
  nameTheme()
}
theme.addEventListener('change', nameTheme)
addEventListener('hashchange', follow)
nameTheme()
showTable(false)
open('g0')
follow()
