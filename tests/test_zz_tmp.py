import pytest, trio
pytestmark = pytest.mark.usefixtures("autojump_clock")
async def test_a():
    await trio.sleep(100)
    assert trio.current_time() == 100
    assert 1 == 2
async def test_b():
    raise ExceptionGroup("x", [ValueError("a")])
def test_c():
    raise ExceptionGroup("x", [ValueError("a")])
@pytest.mark.xfail(raises=KeyError)
async def test_d(): 
    {}["a"]
