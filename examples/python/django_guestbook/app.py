"""A guest book in Django: a form with a picture, a redirect, and a session in a signed cookie."""

import os

import faasw
from django import forms
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.shortcuts import redirect, render
from django.urls import path

HERE = os.path.dirname(os.path.abspath(__file__))

settings.configure(
    # Signs the session's cookie. Give every node the same one.
    SECRET_KEY=os.environ["SECRET_KEY"],
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
    ],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "DIRS": [os.path.join(HERE, "templates")],
            "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
        }
    ],
    USE_TZ=True,
    USE_I18N=False,
)


class Entry(forms.Form):
    name = forms.CharField(max_length=50)
    picture = forms.FileField(required=False)


def index(request):
    form = Entry(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        picture = form.cleaned_data["picture"]
        size = sum(len(chunk) for chunk in picture.chunks()) if picture else 0
        store = faasw.kv.open("default")
        number = store.increment("entries")
        store.set_json(f"entry:{number:010}", {"name": form.cleaned_data["name"], "size": size})
        request.session["entries"] = request.session.get("entries", 0) + 1
        return redirect("index")
    return render(request, "index.html", {"form": form, "entries": entries()})


def entries():
    store = faasw.kv.open("default")
    return [store.get_json(key) for key in list(store.keys("entry:"))[-20:]]


urlpatterns = [path("", index, name="index")]
app = get_wsgi_application()
