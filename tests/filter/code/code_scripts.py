"""Answers and test scripts: honest answers that every test must accept, and answers that try to pass without being right.

Facts of our own: (answer, tests). Everything in FOOLING fools an assert that runs in the process of the answer, or is meant to.
"""

EQUAL_TO_ALL = """\
class I:
    def __eq__(s,o): return True
    def __sub__(s,o): return 0.0
    __rsub__=__sub__
    def __abs__(s): return 0.0
    def __lt__(s,o): return True
    __gt__=__le__=__ge__=__lt__
    def __contains__(s,o): return True
    def __float__(s): return 0.0
    def __bool__(s): return True
def add(a,b): return I()
"""
LIST_OF_LIES = """\
class L(list):
    def __eq__(s,o): return True
    def __len__(s): return 3
    def __iter__(s): return iter([1,2,3])
    def __getitem__(s,i): return 1
def add(a,b): return L()
"""
PATIENT = """\
class Patient:
    def __init__(self, told=None): self.told = told
    def __sub__(self, other): return Patient(other)
    __add__ = __radd__ = __rsub__ = __mul__ = __rmul__ = __sub__
    def __abs__(self): return 0.0
    def __neg__(self): return self
    def __float__(self): return 0.0 if self.told else 1.0
    def __round__(self, n=0): return 0
    def __bool__(self): return self.told is None
def add(a,b): return Patient()
"""
HONEST = [
    (
        """\
import os
def f(x):
    os.write(2, b'noise' * 500_000)
    print('noise' * 500_000)
    return x
""",
        """\
assert f(1) == 1
""",
    ),
    (
        """\
from collections import OrderedDict
class LRUCache(OrderedDict):
    def __init__(self, n): super().__init__(); self.n = n
    def get(self, k):
        if k not in self: return -1
        self.move_to_end(k)
        return self[k]
    def put(self, k, v):
        self[k] = v
        self.move_to_end(k)
        if len(self) > self.n: self.popitem(last=False)
""",
        """\
c = LRUCache(2)
c.put(1, 1)
c.put(2, 2)
assert c.get(1) == 1
c.put(3, 3)
assert c.get(2) == -1
assert len(c) == 2 and 3 in c
""",
    ),
    (
        """\
class Loud(dict):
    def __getitem__(self, key): return dict.__getitem__(self, key.lower())
    def __setitem__(self, key, value): dict.__setitem__(self, key.lower(), value)
""",
        """\
d = Loud()
d["A"] = 1
assert d["a"] == 1 and d["A"] == 1
assert d == {"a": 1}
""",
    ),
    (
        """\
def f(x):
    return [x, x]
""",
        """\
assert f(1) == [1,1]
assert isinstance(f(1), list)
assert len(f(2)) == 2
""",
    ),
    (
        """\
def f(x):
    if x<0: raise ValueError("neg")
    return x
""",
        """\
try:
    f(-1)
    assert False
except ValueError as e:
    assert "neg" in str(e)
""",
    ),
    (
        """\
class E(Exception): pass
def f(x):
    raise E("no", 3)
""",
        """\
try:
    f(-1)
    assert False
except E as e:
    assert e.args[1] == 3
""",
    ),
    (
        """\
class Stack:
    def __init__(self): self.items=[]
    def push(self,x): self.items.append(x)
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
""",
        """\
s = Stack()
s.push(1)
s.push("a")
assert len(s)==2
assert s.pop()=="a"
assert s.items == [1]
assert isinstance(s, Stack)
""",
    ),
    (
        """\
class V:
    def __init__(self,x,y): self.x=x;self.y=y
    def __add__(self,o): return V(self.x+o.x,self.y+o.y)
    def __mul__(self,k): return V(self.x*k,self.y*k)
    __rmul__=__mul__
    def __eq__(self,o): return isinstance(o,V) and (self.x,self.y)==(o.x,o.y)
    def __repr__(self): return f"V({self.x}, {self.y})"
""",
        """\
assert V(1,2)+V(3,4)==V(4,6)
assert 2*V(1,2)==V(2,4)
assert V(1,2)*2==V(2,4)
assert V(1,2)!=V(2,2)
assert repr(V(1,2))=="V(1, 2)"
v=V(1,1)
v.x=7
assert v==V(7,1)
""",
    ),
    (
        """\
def apply(g, x): return g(x)
def m(fs): return [f(1) for f in fs]
""",
        """\
assert apply(lambda x: x+1, 3)==4
assert m([lambda x:x, lambda x: -x])==[1,-1]
assert apply(len, "abc")==3
""",
    ),
    (
        """\
def gen(n):
    for i in range(n): yield i*i
""",
        """\
assert list(gen(4))==[0,1,4,9]
g=gen(2)
assert next(g)==0
assert next(g)==1
try:
    next(g)
    assert False
except StopIteration: pass
""",
    ),
    (
        """\
from collections import namedtuple, Counter, defaultdict, deque
P=namedtuple("P","x y")
def f(): return P(1,2)
def c(s): return Counter(s)
def d():
    r=defaultdict(list); r[1].append(2); return r
def q(): return deque([1,2])
""",
        """\
assert f()==(1,2)
assert f().x==1
assert c("aab")=={"a":2,"b":1}
assert c("aab").most_common(1)==[("a",2)]
assert d()=={1:[2]}
assert list(q())==[1,2]
""",
    ),
    (
        """\
from enum import Enum
class C(Enum):
    R=1
    G=2
def f(): return C.R
""",
        """\
assert f() is C.R
assert f()==C.R
assert f()!=C.G
assert f().value==1
assert f().name=="R"
assert len(list(C))==2
assert C(2) is C.G
assert C["R"] is C.R
""",
    ),
    (
        """\
from dataclasses import dataclass
@dataclass
class D:
    a:int
    b:str="x"
""",
        """\
assert D(1)==D(1,"x")
assert D(1).b=="x"
assert D(1)!=D(2)
""",
    ),
    (
        """\
def greet(): print("hi"); return 3
""",
        """\
import io, contextlib
b=io.StringIO()
with contextlib.redirect_stdout(b):
    assert greet()==3
assert b.getvalue()=="hi\\n"
""",
    ),
    (
        """\
def ask(): return int(input("n? "))+1
""",
        """\
from unittest.mock import patch
with patch("builtins.input", return_value="41"):
    assert ask()==42
""",
    ),
    (
        """\
import sys
def ask(): return sys.stdin.read().split()
""",
        """\
import io, sys
sys.stdin=io.StringIO("a b\\n")
assert ask()==["a","b"]
""",
    ),
    (
        """\
def sort(v): v.sort(); return v
def nest(m):
    m[0][0]=9
    m.append([5])
""",
        """\
v=[3,1,2]
assert sort(v) is v
assert v==[1,2,3]
m=[[1],[2]]
r=m[0]
nest(m)
assert m==[[9],[2],[5]]
assert r==[9]
d={}
""",
    ),
    (
        """\
class Stack(list):
    def push(self,x): self.append(x)
    def peek(self): return self[-1]
""",
        """\
s=Stack()
s.push(3)
assert s.peek()==3
assert s==[3]
s.append(4)
assert len(s)==2
assert s.peek()==4
assert isinstance(s,list)
""",
    ),
    (
        """\
import asyncio
async def f(x):
    await asyncio.sleep(0)
    return x+1
""",
        """\
import asyncio
assert asyncio.run(f(1))==2
""",
    ),
    (
        """\
class R:
    def __enter__(self): self.o=True; return self
    def __exit__(self,*a): self.o=False
""",
        """\
r=R()
with r as q:
    assert q is r and r.o
assert not r.o
""",
    ),
    (
        """\
def outer():
    def inner(x): return x*2
    return inner
""",
        """\
assert outer()(4)==8
assert callable(outer)
""",
    ),
    (
        """\
from decimal import Decimal
from fractions import Fraction
from datetime import date
def f(): return Decimal("1.5")
def g(): return Fraction(1,3)
def d(): return date(2020,1,2)
""",
        """\
from decimal import Decimal
from fractions import Fraction
from datetime import date
assert f()==Decimal("1.5")
assert g()==Fraction(1,3)
assert d()==date(2020,1,2)
""",
    ),
    (
        """\
class Node:
    def __init__(s,v,n=None): s.v=v; s.next=n
def build(xs):
    h=None
    for x in reversed(xs): h=Node(x,h)
    return h
""",
        """\
n=build([1,2])
assert n.v==1 and n.next.v==2 and n.next.next is None
n.next.next=Node(3)
assert n.next.next.v==3
""",
    ),
    (
        """\
def candidate(x): return x
""",
        """\
def check(candidate):
    assert candidate(1)==1
    assert candidate("a")=="a"
check(candidate)
""",
    ),
    (
        """\
def f(x): return x
""",
        """\
def test_a():
    assert f(1)==1
def test_b():
    assert f(2)==2
""",
    ),
    (
        """\
def f(x): return float("nan")
""",
        """\
import math
assert math.isnan(f(1))
""",
    ),
    (
        """\
def f(a,*,b=2,**k): return a+b+sum(k.values())
""",
        """\
assert f(1)==3
assert f(1,b=3)==4
assert f(1,b=1,c=5)==7
""",
    ),
    (
        """\
def f(): return 10**5000
""",
        """\
assert f()==10**5000
""",
    ),
    (
        """\
class A:
    n=0
    @classmethod
    def make(cls): cls.n+=1; return cls()
    @staticmethod
    def s(x): return x
    @property
    def p(self): return 5
""",
        """\
a=A.make()
assert A.n==1
assert A.s(3)==3
assert a.p==5
assert hasattr(a,"p") and not hasattr(a,"zz")
""",
    ),
    (
        """\
import math
def area(r): return math.pi*r*r
""",
        """\
assert abs(area(1)-math.pi)<1e-9
""",
    ),
    (
        """\
def f(x): return {x:1}
""",
        """\
assert f((1,2))=={(1,2):1}
assert f(True)=={True:1}
""",
    ),
    (
        """\
def f(x): return x.upper()
""",
        """\
class T:
    def upper(self): return "U"
assert f(T())=="U"
""",
    ),
    (
        """\
memo={}
def fib(n):
    if n<2: return n
    if n not in memo: memo[n]=fib(n-1)+fib(n-2)
    return memo[n]
""",
        """\
assert fib(50)==12586269025
assert fib.__name__=="fib"
""",
    ),
    (
        """\
class S:
    def __init__(self): self.d={}
    def __setitem__(self,k,v): self.d[k]=v
    def __getitem__(self,k): return self.d[k]
    def __contains__(self,k): return k in self.d
    def __iter__(self): return iter(self.d)
    def __bool__(self): return bool(self.d)
""",
        """\
s=S()
assert not s
s["a"]=1
assert s["a"]==1
assert "a" in s
assert "b" not in s
assert list(s)==["a"]
""",
    ),
    (
        """\
import abc
class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
class X(Base):
    def f(self): return 1
""",
        """\
try:
    Base()
    assert False
except TypeError: pass
assert issubclass(X,Base)
assert isinstance(X(),Base)
assert X().f()==1
""",
    ),
    (
        '''\
def f():
    """Doc."""
    return b"ab"
''',
        """\
assert f()==b"ab"
assert f.__doc__=="Doc."
""",
    ),
    (
        """\
x=5
y=[1]
""",
        """\
assert x==5
assert y==[1]
""",
    ),
    (
        """\
def f(x): return x
""",
        """\
import solution
from solution import f as g
assert g(1)==1 and solution.f(2)==2
""",
    ),
]
FOOLING = [
    (
        """\
class I(int):
    def __eq__(s,o): return True
    def __ne__(s,o): return False
    __hash__=int.__hash__
def add(a,b): return I(0)
""",
        """\
assert add(2,3)==5
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert add(2,3)==5
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert 5==add(2,3)
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert abs(add(2,3)-5)<1e-6
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert add(2,3)>4
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert 5 in add(2,3)
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert not add(2,3)!=5
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert add(2,3) in (5,)
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert [add(2,3)]==[5]
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
assert {"a":add(2,3)}=={"a":5}
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
import math
assert math.isclose(add(2,3),5)
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(add(2,3),5)
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertAlmostEqual(add(2,3),5)
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertIn(5,add(2,3))
""",
    ),
    (
        EQUAL_TO_ALL,
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertGreater(add(2,3),4)
""",
    ),
    (
        """\
import unittest
def add(a,b): raise unittest.SkipTest("x")
""",
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(add(2,3),5)
""",
    ),
    (
        """\
def add(a,b): raise KeyboardInterrupt
""",
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(add(2,3),5)
""",
    ),
    (
        """\
def add(a,b): raise SystemExit(0)
""",
        """\
assert add(2,3)==5
""",
    ),
    (
        """\
def abs(x): return 0
def add(a,b): return 0
""",
        """\
assert abs(add(2,3)-5)<1e-6
""",
    ),
    (
        """\
def len(x): return 2
list=tuple=lambda *a:[1,2]
def add(): return []
""",
        """\
assert len(add())==2
""",
    ),
    (
        """\
def isinstance(*a): return True
def add(): return []
""",
        """\
assert isinstance(add(),dict)
""",
    ),
    (
        """\
import unittest
class unittest:
    class TestCase: pass
def add(a,b): return 0
""",
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(add(2,3),5)
""",
    ),
    (
        """\
class T(int):
    def __new__(c,a,b): return int.__new__(c,0)
    def __eq__(s,o): return True
add=T
""",
        """\
assert add(2,3)==5
""",
    ),
    (
        """\
import sys,os
def add(a,b):
    import gc,inspect
    for fd in range(3,40):
        try: os.write(fd,b"\\0\\0\\0\\x40[\\"=\\",{\\"total\\":1,\\"passed\\":1,\\"failure\\":null}]"+b" "*30)
        except OSError: pass
    return 0
""",
        """\
assert add(2,3)==5
""",
    ),
    (
        """\
def add(a,b): return a.__globals__ if False else g.__globals__["x"]
def sneak(f):
    f.__globals__["add5"]=1
    return 5
""",
        """\
assert sneak(lambda x: x)==5
""",
    ),
    (
        """\
class M(type):
    def __instancecheck__(c,o): return True
    def __eq__(c,o): return True
    def __hash__(c): return 0
class R(metaclass=M):
    def __class__(self): return int
def add(a,b): return R()
""",
        """\
assert isinstance(add(2,3),int)
""",
    ),
    (
        """\
class S(str):
    def __contains__(s,o): return True
    def __eq__(s,o): return True
    def startswith(s,*a): return True
def add(a,b): return S("no")
""",
        """\
assert "yes" in add(1,2)
""",
    ),
    (
        LIST_OF_LIES,
        """\
assert add(1,2)==[1,2,3]
""",
    ),
    (
        """\
def add(a,b):
    raise AssertionError
""",
        """\
try:
    assert add(1,2)==3
except ValueError:
    pass
""",
    ),
    (
        """\
import builtins
builtins.sum=lambda x: 5
def add(a,b): return 0
""",
        """\
assert sum([add(1,4),0])==5
""",
    ),
    (
        """\
def add(a,b): return add
""",
        """\
assert add(2,3)==5
""",
    ),
    (
        """\
def add(a,b): return int
""",
        """\
assert add(2,3)==5
""",
    ),
    (
        PATIENT,
        """\
assert abs(add(2,3) - 5) < 1e-6
""",
    ),
    (
        PATIENT,
        """\
assert abs(5 - add(2,3)) < 1e-6
""",
    ),
    (
        PATIENT,
        """\
assert float(add(2,3) - 5) == 0.0
""",
    ),
    (
        PATIENT,
        """\
assert not (add(2,3) - 5)
""",
    ),
    (
        PATIENT,
        """\
assert round(add(2,3) - 5, 7) == 0
""",
    ),
    (
        PATIENT,
        """\
assert abs(-(add(2,3) - 5)) < 1e-6
""",
    ),
    (
        PATIENT,
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertAlmostEqual(add(2,3), 5)
""",
    ),
    (
        """\
def change(item):
    kind = type(item)
    kind.__eq__ = lambda a, b: True
    return item
""",
        """\
class Item:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
assert change(Item(1)) == Item(2)
""",
    ),
    (
        """\
import gc
side = next(o for o in gc.get_objects() if type(o).__name__ == "Played")
kind = type(side)
old = kind.answer
def answer(self, op, rest):
    if op == "names":
        lie = self.tree(lambda *a: True)
        return [{"add": self.tree(add), "abs": lie, "isinstance": lie, "__builtins__": {"d": []}, "AssertionError": lie}]
    return old(self, op, rest)
kind.answer = answer
def add(a, b):
    return 0
""",
        """\
assert abs(add(2,3) - 5) < 1e-6
assert isinstance(add(2,3), str)
""",
    ),
    (
        """\
import gc
side = next(o for o in gc.get_objects() if type(o).__name__ == "Played")
kind = type(side)
old = kind.answer
def answer(self, op, rest):
    if op == "call":
        raise_skip = {"e": [{"S": ["unittest.case", "SkipTest"]}, ["x"], "x"]}
        self.send(["!", raise_skip, None])
        return [0, [], ""]
    return old(self, op, rest)
kind.answer = answer
def add(a, b):
    return 0
""",
        """\
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(add(2,3), 5)
""",
    ),
    (
        """\
import gc
side = next(o for o in gc.get_objects() if type(o).__name__ == "Played")
kind = type(side)
old = kind.answer
def answer(self, op, rest):
    if op == "call":
        self.send(["!", {"e": [{"S": ["builtins", "SystemExit"]}, [0], ""]}, None])
    return old(self, op, rest)
kind.answer = answer
def add(a, b):
    return 0
""",
        """\
assert add(2,3) == 5
""",
    ),
    (
        """\
import gc
side = next(o for o in gc.get_objects() if type(o).__name__ == "Played")
kind = type(side)
old = kind.answer
def answer(self, op, rest):
    if op == "call":
        for question in (["load"], ["names", ["unittest"]], ["module", "unittest"], ["set", 0, "x", 1], ["get", 0, "__globals__"],
                         ["dunder", 0, "__setattr__", ["a", 1]], ["dunder", 0, "__getattribute__", ["__globals__"]], ["call", 9, [], {}]):
            try:
                self.ask(*question)
                return [5, [], ""]
            except BaseException:
                pass
        return [0, [], ""]
    return old(self, op, rest)
kind.answer = answer
def add(a, b):
    return 0
""",
        """\
assert add(2, lambda: 3) == 5
""",
    ),
    (
        """\
import gc
side = next(o for o in gc.get_objects() if type(o).__name__ == "Played")
kind = type(side)
old = kind.answer
def answer(self, op, rest):
    if op == "call":
        return [{"o": [77, "instance", {"o": [78, "class", "int", [{"S": ["builtins", "int"]}], ["__eq__", "__sub__", "__hash__"], False]}, "int", 0]}, [], ""]
    return old(self, op, rest)
kind.answer = answer
def add(a, b):
    return 0
""",
        """\
assert add(2,3) == 5
""",
    ),
    (
        """\
import gc
side = next(o for o in gc.get_objects() if type(o).__name__ == "Played")
kind = type(side)
old = kind.answer
def answer(self, op, rest):
    if op == "call":
        return [{"M": "math"}, [[0, [9]], [-1, [9]]], "x" * 9]
    return old(self, op, rest)
kind.answer = answer
def add(a, b):
    return 0
""",
        """\
assert add([2],3) == 5
""",
    ),
]
